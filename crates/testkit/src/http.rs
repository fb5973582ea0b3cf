//! One call over plain HTTP, for listeners without TLS.

use std::io::{self, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::https::Answer;

/// Asks on a connection of its own, and reads to its end.
///
/// # Errors
/// If nobody answers, or not in HTTP.
pub fn call(address: SocketAddr, method: &str, path: &str) -> io::Result<Answer> {
    let mut stream = TcpStream::connect(address)?;
    stream.set_read_timeout(Some(DEADLINE))?;
    stream.set_write_timeout(Some(DEADLINE))?;
    let head = format!("{method} {path} HTTP/1.1\r\nHost: {address}\r\nConnection: close\r\n\r\n");
    stream.write_all(head.as_bytes())?;
    let mut received = Vec::new();
    stream.take(MAX_ANSWER).read_to_end(&mut received)?;
    let end = received.windows(4).position(|four| four == b"\r\n\r\n");
    let end = end.ok_or(io::ErrorKind::InvalidData)?;
    let body = received.split_off(end.saturating_add(4));
    let head = String::from_utf8_lossy(&received).into_owned();
    let mut lines = head.trim_end().lines();
    let status = lines.next().and_then(|line| line.get(9..12)?.parse().ok());
    let headers = lines.filter_map(|line| line.split_once(':'));
    Ok(Answer {
        status: status.ok_or(io::ErrorKind::InvalidData)?,
        headers: headers
            .map(|(name, value)| (name.to_ascii_lowercase(), value.trim().to_owned()))
            .collect(),
        body,
    })
}

const DEADLINE: Duration = Duration::from_secs(30);
const MAX_ANSWER: u64 = 16 * 1024 * 1024;
