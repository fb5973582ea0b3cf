//! The name that a machine has for itself.

use std::fs;

use crate::settings::machine_name;

/// This machine's fully qualified name in lower case, as far as its own files tell it: no name server is asked.
pub(super) fn fully_qualified() -> String {
    let read = |path: &str| fs::read_to_string(path).unwrap_or_default();
    qualified(
        &machine_name(),
        &read("/etc/hosts"),
        &read("/etc/resolv.conf"),
    )
}

/// A name with dots is complete. For any other, hosts(5) may have a longer one as the canonical name of the same
/// address, else resolv.conf(5) may name the domain.
fn qualified(name: &str, hosts: &str, resolver: &str) -> String {
    if name.contains('.') {
        return name.to_owned();
    }
    let own_line = |line: &&str| line.split_whitespace().skip(1).any(|word| word == name);
    let own = format!("{name}.");
    let canonical = hosts
        .lines()
        .map(|line| line.split('#').next().unwrap_or_default())
        .filter(own_line)
        .flat_map(|line| line.split_whitespace().skip(1))
        .find(|word| word.to_ascii_lowercase().starts_with(&own));
    if let Some(canonical) = canonical {
        return canonical.to_ascii_lowercase();
    }
    let domain = |keyword: &str| {
        let mut lines = resolver.lines().map(str::split_whitespace);
        lines.find_map(|mut words| {
            (words.next() == Some(keyword)).then(|| words.next().unwrap_or_default().to_owned())
        })
    };
    match domain("domain").or_else(|| domain("search")) {
        Some(domain) if !domain.trim_matches('.').is_empty() => {
            let domain = domain.trim_matches('.').to_ascii_lowercase();
            format!("{name}.{domain}")
        }
        Some(_) | None => name.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_completed_by_the_machines_own_files() {
        let hosts = "127.0.0.1 localhost\n127.0.1.1 Web01.Example.com web01 # web01.wrong\n";
        let resolver = "nameserver 192.0.2.1\nsearch Lab.example.com. example.com\n";
        for (name, hosts, resolver, expected) in [
            ("a.example", hosts, resolver, "a.example"),
            ("web01", hosts, resolver, "web01.example.com"),
            ("web02", hosts, resolver, "web02.lab.example.com"),
            (
                "web02",
                hosts,
                "domain a.example\nsearch b.example",
                "web02.a.example",
            ),
            ("web02", hosts, "search .", "web02"),
            ("localhost", hosts, "", "localhost"),
            ("vm", "127.0.0.1 localhost vm", "", "vm"),
        ] {
            assert_eq!(qualified(name, hosts, resolver), expected);
        }
    }
}
