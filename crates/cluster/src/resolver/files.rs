//! `/etc/hosts` and `/etc/resolv.conf`.

use std::net::{IpAddr, Ipv4Addr};
use std::time::Duration;

/// How names are to be asked for (resolv.conf(5)).
#[derive(Debug, PartialEq, Eq)]
pub(super) struct ResolvConf {
    pub(super) servers: Vec<IpAddr>,
    /// 53, but in tests.
    pub(super) port: u16,
    pub(super) search: Vec<String>,
    pub(super) ndots: usize,
    /// For one server to answer.
    pub(super) patience: Duration,
    pub(super) attempts: u32,
}

impl ResolvConf {
    /// Reads the file. What is not understood is left out, as everywhere.
    pub(super) fn parse(text: &str) -> Self {
        let mut conf = Self {
            servers: Vec::new(),
            port: 53,
            search: Vec::new(),
            ndots: 1,
            patience: DEFAULT_PATIENCE,
            attempts: 2,
        };
        for line in text.lines() {
            let mut words = line.split_whitespace();
            match words.next() {
                Some("nameserver") => {
                    let address: Option<IpAddr> = words.next().and_then(|word| word.parse().ok());
                    conf.servers.extend(address);
                }
                Some("search" | "domain") => {
                    conf.search = words
                        .map(|domain| domain.trim_matches('.').to_owned())
                        .filter(|domain| !domain.is_empty())
                        .take(MAX_SEARCH)
                        .collect();
                }
                Some("options") => words.for_each(|word| conf.option(word)),
                #[cfg(test)]
                Some("#") if line.starts_with("# port ") => {
                    conf.port = line[7..].trim().parse().unwrap();
                }
                _ => {}
            }
        }
        conf.servers.truncate(MAX_SERVERS);
        if conf.servers.is_empty() {
            conf.servers.push(IpAddr::V4(Ipv4Addr::LOCALHOST));
        }
        conf
    }

    fn option(&mut self, word: &str) {
        let Some((name, value)) = word.split_once(':') else {
            return;
        };
        let Ok(value) = value.parse::<u32>() else {
            return;
        };
        match name {
            "ndots" => self.ndots = usize::try_from(value.min(15)).unwrap_or(1),
            "timeout" => {
                let patience = Duration::from_secs(u64::from(value.clamp(1, 30)));
                self.patience = patience.min(DEFAULT_PATIENCE);
            }
            "attempts" => self.attempts = value.clamp(1, 5),
            _ => {}
        }
    }

    /// The names that a name may stand for, in the order in which they are asked for.
    pub(super) fn candidates(&self, name: &str) -> Vec<String> {
        if let Some(full) = name.strip_suffix('.') {
            return vec![full.to_owned()];
        }
        let under = |domain: &String| format!("{name}.{domain}");
        let searched = self.search.iter().map(under).filter(|it| it.len() <= 253);
        let dots = name.bytes().filter(|byte| *byte == b'.').count();
        let own = || std::iter::once(name.to_owned());
        match dots >= self.ndots {
            true => own().chain(searched).collect(),
            false => searched.chain(own()).collect(),
        }
    }
}

/// What `/etc/hosts` says of a name, however it is written.
pub(super) fn addresses_in_hosts(hosts: &str, name: &str) -> Vec<IpAddr> {
    let name = name.strip_suffix('.').unwrap_or(name);
    let mut found = Vec::new();
    for line in hosts.lines() {
        let line = line.split('#').next().unwrap_or_default();
        let mut words = line.split_whitespace();
        let Some(Ok(address)) = words.next().map(str::parse::<IpAddr>) else {
            continue;
        };
        if words.any(|word| word.eq_ignore_ascii_case(name)) && !found.contains(&address) {
            found.push(address);
        }
    }
    found
}

/// glibc waits for 5 s; a name must be answered within that in all.
const DEFAULT_PATIENCE: Duration = Duration::from_secs(2);
const MAX_SERVERS: usize = 3;
const MAX_SEARCH: usize = 32;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_search_list_is_tried_by_the_number_of_dots() {
        let pod = "search ns.svc.cluster.local svc.cluster.local cluster.local\n\
                   nameserver 10.96.0.10\noptions ndots:5\n";
        let host = "nameserver 192.0.2.1\ndomain lab.example.\n";
        for (text, name, expected) in [
            (
                pod,
                "worker-a.lab.example",
                vec![
                    "worker-a.lab.example.ns.svc.cluster.local",
                    "worker-a.lab.example.svc.cluster.local",
                    "worker-a.lab.example.cluster.local",
                    "worker-a.lab.example",
                ],
            ),
            (pod, "worker-a.lab.example.", vec!["worker-a.lab.example"]),
            (host, "worker-a", vec!["worker-a.lab.example", "worker-a"]),
            (
                host,
                "worker-a.other",
                vec!["worker-a.other", "worker-a.other.lab.example"],
            ),
            ("", "worker-a", vec!["worker-a"]),
        ] {
            assert_eq!(ResolvConf::parse(text).candidates(name), expected, "{name}");
        }
    }

    #[test]
    fn nonsense_is_left_out() {
        let conf = ResolvConf::parse("nameserver x\nnameserver ::1\noptions ndots:z attempts:99\n");
        assert_eq!(conf.servers, ["::1".parse::<IpAddr>().unwrap()]);
        assert_eq!((conf.ndots, conf.attempts), (1, 5));
        let hosts = "# a\n127.0.0.1 a\nbad a\n::1\ta b # c\n";
        let local: [IpAddr; 2] = ["127.0.0.1".parse().unwrap(), "::1".parse().unwrap()];
        assert_eq!(addresses_in_hosts(hosts, "A."), local);
        assert_eq!(addresses_in_hosts(hosts, "c"), [] as [IpAddr; 0]);
    }
}
