//! An answer that is lost on the way: nobody has seen the token, so that it must not stay good.

use std::io::{Read as _, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread;

use super::*;
use crate::commands::wait_until;

/// Passes bytes on, but keeps what the server says on the first connection once the client has finished its handshake.
/// The first connection ends when that is asked for; the others are as they should be.
struct Keeper {
    address: SocketAddr,
    let_go: SyncSender<()>,
}

impl Keeper {
    fn before(server: SocketAddr) -> Self {
        let listener = TcpListener::bind(("127.0.0.1", 0)).unwrap();
        let address = listener.local_addr().unwrap();
        let (let_go, asked) = sync_channel(1);
        thread::spawn(move || {
            let first = listener.accept().unwrap().0;
            keep(&first, &TcpStream::connect(server).unwrap(), &asked);
            while let Ok((client, _)) = listener.accept() {
                let server = TcpStream::connect(server).unwrap();
                let (to, from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
                thread::spawn(move || pass(from, to));
                thread::spawn(move || pass(server, client));
            }
        });
        Self { address, let_go }
    }
}

/// The client's hello, the server's answer to it (RFC 8446 2), and then nothing more of what the server says.
fn keep(client: &TcpStream, server: &TcpStream, asked: &Receiver<()>) {
    let mut buffer = [0; 16 * 1024];
    let is_kept = Arc::new(AtomicBool::new(false));
    let hello = (&*client).read(&mut buffer).unwrap();
    (&*server).write_all(&buffer[..hello]).unwrap();
    let (mut to, mut from) = (client.try_clone().unwrap(), server.try_clone().unwrap());
    let kept = Arc::clone(&is_kept);
    let answering = thread::spawn(move || {
        let mut said = [0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut said) {
            if !kept.load(Ordering::SeqCst) && to.write_all(&said[..length]).is_err() {
                break;
            }
        }
    });
    let finished = (&*client).read(&mut buffer).unwrap();
    is_kept.store(true, Ordering::SeqCst);
    (&*server).write_all(&buffer[..finished]).unwrap();
    let (to, from) = (server.try_clone().unwrap(), client.try_clone().unwrap());
    let asking = thread::spawn(move || pass(from, to));
    asked.recv().unwrap();
    client.shutdown(Shutdown::Both).ok();
    server.shutdown(Shutdown::Both).ok();
    answering.join().unwrap();
    asking.join().unwrap();
}

fn pass(mut from: TcpStream, mut to: TcpStream) {
    let _either_has_ended = std::io::copy(&mut from, &mut to);
    to.shutdown(Shutdown::Write).ok();
}

#[test]
fn an_order_whose_answer_is_lost_leaves_no_token_that_nobody_has() {
    let world = World::start(ENABLED);
    let url = &world.server().addresses.puppet;
    let server: SocketAddr = url.strip_prefix("https://").unwrap().parse().unwrap();
    let Keeper { address, let_go } = Keeper::before(server);
    let file = |name: &str| world.installation.path(name).to_str().unwrap().to_owned();
    let (cert, key) = (file("admin/admin.pem"), file("admin/admin-key.pem"));
    let (ca, url) = (file("admin/ca.pem"), format!("https://{address}"));
    let client = thread::spawn(move || {
        let credentials = ["--cert", &cert, "--key", &key, "--cacert", &ca];
        let order = ["token", "create", "a.example.com", "--server", &url];
        run(&[&order[..], &credentials].concat())
    });
    wait_until("the order is carried out", || world.items(&[]).len() == 1);
    let_go.send(()).unwrap();
    let finished = client.join().unwrap();
    assert!(finished.success(), "{finished}");
    let token = TokenText::parse(finished.stdout.trim_end()).unwrap();
    let items = world.items(&[]);
    let standing: Vec<_> = items
        .iter()
        .map(|item| (&item["id"], &item["status"]))
        .collect();
    assert_eq!(standing.len(), 2, "{items:?}");
    for (id, status) in standing {
        let expected = if id == token.id().as_str() {
            "active"
        } else {
            "revoked"
        };
        assert_eq!(status, expected, "{items:?}");
    }
    assert_eq!(world.enrol("a.example.com", token.expose()).status, 200);
}
