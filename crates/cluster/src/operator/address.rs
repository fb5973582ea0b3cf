//! Where the CA of a CertificateAuthority is: pure functions of its namespace's objects.

use std::collections::BTreeMap;

use super::object::{AuthorityObject, ConfigObject, PoolObject, ServerObject};

/// What a namespace has of the other operator's objects.
#[derive(Clone, Debug, Default)]
pub(crate) struct Neighbours {
    pub(crate) configs: Vec<ConfigObject>,
    pub(crate) servers: Vec<ServerObject>,
    pub(crate) pools: Vec<PoolObject>,
}

impl Neighbours {
    /// The Servers that run a CA, by name.
    fn ca_servers(&self, authority: &str) -> impl Iterator<Item = &ServerObject> {
        let is_of = move |config: &str| {
            self.configs
                .iter()
                .any(|it| it.name == config && it.authority == authority)
        };
        self.servers
            .iter()
            .filter(move |server| server.is_ca && is_of(&server.config))
    }

    /// The Certificate of the CA's own server, if somebody has named one.
    pub(crate) fn server_certificate(&self, authority: &str) -> Option<&str> {
        let servers = self.ca_servers(authority);
        let named = servers.map(|server| server.certificate.as_str());
        named.filter(|name| !name.is_empty()).min()
    }

    /// The Service in front of the CA: that of a Pool which takes in a Server that runs it.
    fn pool_service(&self, authority: &str) -> Option<(String, u16)> {
        let servers: Vec<&ServerObject> = self.ca_servers(authority).collect();
        let takes = |pool: &PoolObject, server: &ServerObject| {
            pool.config == server.config
                && (server.pools.contains(&pool.name) || covers(&pool.selector, &server.labels))
        };
        let is_in_front = |pool: &&PoolObject| servers.iter().any(|server| takes(pool, server));
        let pool = self
            .pools
            .iter()
            .filter(is_in_front)
            .min_by(|a, b| a.name.cmp(&b.name))?;
        Some((pool.service.clone(), pool.port))
    }
}

/// The CA's address: that of its `spec.external`, else of the authority that this operator was told of, else of the Service
/// that is named after it, else of a Pool in front of its Servers.
pub(crate) fn url(
    authority: &AuthorityObject,
    told: Option<&str>,
    has_service: bool,
    neighbours: &Neighbours,
) -> Option<String> {
    if let Some(external) = &authority.external {
        return Some(external.url.trim_end_matches('/').to_owned());
    }
    if let Some(told) = told {
        return Some(told.trim_end_matches('/').to_owned());
    }
    let namespace = &authority.meta.name.namespace;
    if has_service {
        return Some(format!("https://{}:8140", internal_host(authority)));
    }
    let (service, port) = neighbours.pool_service(&authority.meta.name.name)?;
    Some(format!("https://{service}.{namespace}.svc:{port}"))
}

/// The name by which the CA is known inside the cluster.
pub(crate) fn internal_host(authority: &AuthorityObject) -> String {
    let service = authority.own("internal");
    format!("{}.{}.svc", service.name, service.namespace)
}

/// Whether a selector that says something takes in an object with these labels.
fn covers(selector: &BTreeMap<String, String>, labels: &BTreeMap<String, String>) -> bool {
    !selector.is_empty()
        && selector
            .iter()
            .all(|(key, value)| labels.get(key) == Some(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn neighbours(objects: &[Value]) -> Neighbours {
        let mut all = Neighbours::default();
        for object in objects {
            match object["kind"].as_str() {
                Some("Config") => all.configs.extend(ConfigObject::read(object)),
                Some("Server") => all.servers.extend(ServerObject::read(object)),
                _ => all.pools.extend(PoolObject::read(object)),
            }
        }
        all
    }

    fn object(kind: &str, name: &str, spec: Value) -> Value {
        json!({"kind": kind, "metadata": {"name": name, "namespace": "ns", "labels": {"role": name}}, "spec": spec})
    }

    #[test]
    fn the_ca_is_found() {
        let config = object("Config", "prod", json!({"authorityRef": "ca"}));
        let other = object("Config", "test", json!({"authorityRef": "ca2"}));
        let server = object(
            "Server",
            "ca-server",
            json!({"configRef": "prod", "ca": true, "certificateRef": "ca-cert", "poolRefs": ["front"]}),
        );
        let compiler = object(
            "Server",
            "compiler",
            json!({"configRef": "prod", "certificateRef": "compiler-cert", "poolRefs": ["front"]}),
        );
        let pool = object(
            "Pool",
            "front",
            json!({"configRef": "prod", "service": {"port": 8141}}),
        );
        let selecting = object(
            "Pool",
            "by-label",
            json!({"configRef": "prod", "selector": {"role": "ca-server"}}),
        );
        let selecting_others = object(
            "Pool",
            "compilers",
            json!({"configRef": "prod", "selector": {"role": "compiler"}}),
        );
        let elsewhere = object("Pool", "front", json!({"configRef": "test"}));
        let ca = |spec: Value| {
            AuthorityObject::read(&object("CertificateAuthority", "ca", spec)).unwrap()
        };
        let internal = || ca(json!({}));
        for (case, authority, told, has_service, objects, expected) in [
            (
                "external, with a slash at the end",
                ca(json!({"external": {"url": "https://puppet.example.com:8140/"}})),
                Some("https://told:8140"),
                true,
                vec![],
                Some("https://puppet.example.com:8140"),
            ),
            (
                "told",
                internal(),
                Some("https://told:8140/"),
                true,
                vec![],
                Some("https://told:8140"),
            ),
            (
                "its Service",
                internal(),
                None,
                true,
                vec![],
                Some("https://ca-internal.ns.svc:8140"),
            ),
            ("nothing", internal(), None, false, vec![], None),
            (
                "a Pool that its Server joins",
                internal(),
                None,
                false,
                vec![
                    config.clone(),
                    server.clone(),
                    compiler.clone(),
                    pool.clone(),
                ],
                Some("https://front.ns.svc:8141"),
            ),
            (
                "a Pool that selects its Server",
                internal(),
                None,
                false,
                vec![
                    config.clone(),
                    server.clone(),
                    selecting_others.clone(),
                    selecting,
                ],
                Some("https://by-label.ns.svc:8140"),
            ),
            (
                "a Pool in front of compilers only",
                internal(),
                None,
                false,
                vec![config.clone(), compiler, selecting_others, pool],
                None,
            ),
            (
                "a Pool of another Config",
                internal(),
                None,
                false,
                vec![config, other, server, elsewhere],
                None,
            ),
        ] {
            let found = url(&authority, told, has_service, &neighbours(&objects));
            assert_eq!(found.as_deref(), expected, "{case}");
        }
    }

    #[test]
    fn the_servers_own_certificate_is_the_one_that_a_ca_server_names() {
        let config = object("Config", "prod", json!({"authorityRef": "ca"}));
        let server = object(
            "Server",
            "s",
            json!({"configRef": "prod", "ca": true, "certificateRef": "c"}),
        );
        let compiler = object(
            "Server",
            "t",
            json!({"configRef": "prod", "certificateRef": "b"}),
        );
        let all = neighbours(&[config, server, compiler]);
        assert_eq!(all.server_certificate("ca"), Some("c"));
        assert_eq!(all.server_certificate("ca2"), None);
    }
}
