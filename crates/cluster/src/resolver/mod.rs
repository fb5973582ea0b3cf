//! What names resolve to, as the resolver of this machine is set up: `/etc/hosts`, then the servers and the search list of
//! `/etc/resolv.conf`.
//!
//! Unlike the system's own call it tells apart that there is no such name, that a server failed, and that none answered in
//! time: only the first is an answer. Both families must be answered; half an answer is none, because rules judge by all
//! addresses of a name.

mod files;
mod message;

use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::time::Duration;

use aws_lc_rs::rand;
use countersign_policy::NameAnswer;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpStream, UdpSocket};
use tokio::time::timeout;

use self::files::{ResolvConf, addresses_in_hosts};
use self::message::{Family, Reply, decode, encode};

/// Where the resolver of this machine is set up.
#[derive(Clone, Debug)]
pub(crate) struct Resolver {
    hosts: PathBuf,
    conf: PathBuf,
}

impl Default for Resolver {
    fn default() -> Self {
        Self {
            hosts: PathBuf::from("/etc/hosts"),
            conf: PathBuf::from("/etc/resolv.conf"),
        }
    }
}

/// What one question came to.
enum Asked {
    Addresses(Vec<IpAddr>),
    /// There is no such name, or it has no address of this family.
    Nothing,
}

/// Why a question has no answer.
enum Unanswered {
    Timeout,
    Failure(String),
}

impl Resolver {
    #[cfg(test)]
    pub(crate) fn of(hosts: &Path, conf: &Path) -> Self {
        Self {
            hosts: hosts.to_owned(),
            conf: conf.to_owned(),
        }
    }

    /// All addresses of a name.
    pub(crate) async fn look_up(&self, name: &str) -> NameAnswer {
        if let Ok(address) = name.parse::<IpAddr>() {
            return NameAnswer::Addresses(vec![address]);
        }
        if !is_host_name(name) {
            return NameAnswer::Nothing;
        }
        let (hosts, conf) = (self.hosts.clone(), self.conf.clone());
        let read = tokio::task::spawn_blocking(move || {
            let hosts = read(&hosts).unwrap_or_default();
            (hosts, read(&conf).unwrap_or_default())
        });
        let Ok((hosts, conf)) = read.await else {
            return NameAnswer::Failure("the resolver's files cannot be read".to_owned());
        };
        let known = addresses_in_hosts(&hosts, name);
        if !known.is_empty() {
            return NameAnswer::Addresses(known);
        }
        let conf = ResolvConf::parse(&conf);
        match timeout(PATIENCE, ask_all(&conf, name)).await {
            Ok(answer) => answer,
            Err(_) => NameAnswer::Timeout,
        }
    }
}

/// Asks for a name under each domain of the search list, as long as there is nothing.
async fn ask_all(conf: &ResolvConf, name: &str) -> NameAnswer {
    for candidate in conf.candidates(name) {
        let (four, six) = tokio::join!(
            ask(conf, &candidate, Family::V4),
            ask(conf, &candidate, Family::V6)
        );
        let mut addresses = Vec::new();
        for answer in [four, six] {
            match answer {
                Ok(Asked::Addresses(more)) => addresses.extend(more),
                Ok(Asked::Nothing) => {}
                Err(Unanswered::Timeout) => return NameAnswer::Timeout,
                Err(Unanswered::Failure(why)) => return NameAnswer::Failure(why),
            }
        }
        if !addresses.is_empty() {
            return NameAnswer::Addresses(addresses);
        }
    }
    NameAnswer::Nothing
}

/// Asks one server after the other until one answers.
async fn ask(conf: &ResolvConf, name: &str, family: Family) -> Result<Asked, Unanswered> {
    let mut last = Unanswered::Timeout;
    for _ in 0..conf.attempts {
        for server in &conf.servers {
            let server = SocketAddr::new(*server, conf.port);
            match timeout(conf.patience, ask_server(server, name, family)).await {
                Err(_) => last = Unanswered::Timeout,
                Ok(Err(fault)) => last = Unanswered::Failure(format!("{server}: {fault}")),
                Ok(Ok(reply)) => match reply.code {
                    NO_ERROR if reply.addresses.is_empty() => return Ok(Asked::Nothing),
                    NO_ERROR => return Ok(Asked::Addresses(reply.addresses)),
                    NO_SUCH_NAME => return Ok(Asked::Nothing),
                    code => {
                        let why = format!("{server} answers {}", code_word(code));
                        last = Unanswered::Failure(why);
                    }
                },
            }
        }
    }
    Err(last)
}

async fn ask_server(server: SocketAddr, name: &str, family: Family) -> std::io::Result<Reply> {
    let mut id = [0; 2];
    rand::fill(&mut id).map_err(|_| std::io::Error::other("no random number"))?;
    let question = encode(id, name, family).ok_or_else(|| std::io::Error::other("not a name"))?;
    let any: SocketAddr = match server {
        SocketAddr::V4(_) => ([0, 0, 0, 0], 0).into(),
        SocketAddr::V6(_) => ([0_u16; 8], 0).into(),
    };
    // A port of its own for every question: whoever wants to answer in the server's place must guess it, too.
    let socket = UdpSocket::bind(any).await?;
    socket.connect(server).await?;
    socket.send(&question).await?;
    let mut buffer = vec![0; MAX_UDP];
    loop {
        let length = socket.recv(&mut buffer).await?;
        let answer = buffer.get(..length).unwrap_or_default();
        // What does not answer this very question is somebody else's.
        let Some(reply) = decode(answer, id, name, family) else {
            continue;
        };
        if reply.is_truncated {
            return ask_over_tcp(server, &question, id, name, family).await;
        }
        return Ok(reply);
    }
}

async fn ask_over_tcp(
    server: SocketAddr,
    question: &[u8],
    id: [u8; 2],
    name: &str,
    family: Family,
) -> std::io::Result<Reply> {
    let mut stream = TcpStream::connect(server).await?;
    let length = u16::try_from(question.len()).map_err(std::io::Error::other)?;
    stream.write_all(&length.to_be_bytes()).await?;
    stream.write_all(question).await?;
    let length = stream.read_u16().await?;
    let mut answer = vec![0; usize::from(length)];
    stream.read_exact(&mut answer).await?;
    decode(&answer, id, name, family).ok_or_else(|| std::io::Error::other("not an answer"))
}

/// A name that can be asked for: labels of at most 63 characters, 253 in all.
fn is_host_name(name: &str) -> bool {
    let name = name.strip_suffix('.').unwrap_or(name);
    let is_label = |label: &str| {
        let is_legal = |c: u8| c.is_ascii_alphanumeric() || c == b'-' || c == b'_';
        !label.is_empty() && label.len() <= 63 && label.bytes().all(is_legal)
    };
    name.len() <= 253 && name.split('.').all(is_label)
}

fn read(path: &Path) -> std::io::Result<String> {
    use std::io::Read as _;
    let mut text = Vec::new();
    std::fs::File::open(path)?
        .take(MAX_FILE)
        .read_to_end(&mut text)?;
    Ok(String::from_utf8_lossy(&text).into_owned())
}

fn code_word(code: u8) -> String {
    match code {
        1 => "FORMERR".to_owned(),
        SERVER_FAILURE => "SERVFAIL".to_owned(),
        4 => "NOTIMP".to_owned(),
        5 => "REFUSED".to_owned(),
        other => format!("code {other}"),
    }
}

const NO_ERROR: u8 = 0;
const SERVER_FAILURE: u8 = 2;
const NO_SUCH_NAME: u8 = 3;
/// For one name with its whole search list.
const PATIENCE: Duration = Duration::from_secs(5);
const MAX_UDP: usize = 4096;
const MAX_FILE: u64 = 1024 * 1024;

#[cfg(test)]
mod tests {
    use super::*;

    /// A name server that answers by what the name begins with.
    async fn server() -> SocketAddr {
        let socket = UdpSocket::bind("127.0.0.1:0").await.unwrap();
        let address = socket.local_addr().unwrap();
        tokio::spawn(async move {
            let mut buffer = [0; 512];
            loop {
                let (length, from) = socket.recv_from(&mut buffer).await.unwrap();
                let question = &buffer[..length];
                let first = question[13..13 + usize::from(question[12])].to_vec();
                let is_v4 = question[length - 15..length - 11] == [0, 1, 0, 1];
                let code = match first.as_slice() {
                    b"broken" => 2,
                    b"refused" => 5,
                    b"half" if !is_v4 => 2,
                    b"good" | b"nodata" | b"half" => 0,
                    b"silent" => continue,
                    _ => 3,
                };
                let mut answer = question[..length - 11].to_vec();
                answer[2..4].copy_from_slice(&[0x81, 0x80 | code]);
                answer[10..12].copy_from_slice(&[0, 0]);
                let is_found = code == 0 && is_v4 && first != b"nodata";
                answer[6..8].copy_from_slice(&[0, u8::from(is_found)]);
                if is_found {
                    answer.extend([0xc0, 12, 0, 1, 0, 1, 0, 0, 0, 9, 0, 4, 10, 20, 0, 11]);
                }
                // Somebody guesses, and is not believed.
                let mut forged = answer.clone();
                forged[0] ^= 1;
                socket.send_to(&forged, from).await.unwrap();
                socket.send_to(&answer, from).await.unwrap();
            }
        });
        address
    }

    #[tokio::test]
    async fn a_missing_name_a_failure_and_silence_are_told_apart() {
        let server = server().await;
        let folder = tempfile::tempdir().unwrap();
        let (hosts, conf) = (
            folder.path().join("hosts"),
            folder.path().join("resolv.conf"),
        );
        std::fs::write(&hosts, "192.0.2.7 in-hosts in-hosts.lab.example # here\n").unwrap();
        let text = format!(
            "nameserver 127.0.0.1\n# port {}\nsearch lab.example\noptions timeout:1 attempts:1\n",
            server.port()
        );
        std::fs::write(&conf, text).unwrap();
        let resolver = Resolver::of(&hosts, &conf);
        let address = |text: &str| NameAnswer::Addresses(vec![text.parse().unwrap()]);
        for (name, expected) in [
            ("good.lab.example", address("10.20.0.11")),
            ("good", address("10.20.0.11")),
            ("IN-HOSTS", address("192.0.2.7")),
            ("10.1.2.3", address("10.1.2.3")),
            ("missing.lab.example", NameAnswer::Nothing),
            ("nodata.lab.example", NameAnswer::Nothing),
            ("not a name", NameAnswer::Nothing),
            ("", NameAnswer::Nothing),
            ("silent.lab.example", NameAnswer::Timeout),
        ] {
            assert_eq!(resolver.look_up(name).await, expected, "{name}");
        }
        for (name, word) in [
            ("broken.lab.example", "SERVFAIL"),
            ("refused.lab.example", "REFUSED"),
            ("half.lab.example", "SERVFAIL"),
        ] {
            let NameAnswer::Failure(why) = resolver.look_up(name).await else {
                panic!("{name}")
            };
            assert!(why.contains(word), "{name}: {why}");
        }
    }
}
