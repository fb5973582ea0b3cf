//! The Service by which an internal CA is known in its namespace.

use std::net::IpAddr;

use http::Uri;
use serde_json::{Value, json};

use super::calls::Kind;
use super::object::{AUTHORITY_LABEL, AuthorityObject, Meta, ObjectName, controller_reference};
use super::{Operator, Pass};

/// What stands behind the Service.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Behind {
    /// Pods of the CA, by their labels.
    Pods,
    /// A host by its name.
    Host(String),
    /// An address, and a port there.
    Address(IpAddr, u16),
}

impl Operator {
    /// Has the Service there, and returns its name.
    pub(super) async fn service(&self, authority: &AuthorityObject) -> Pass<String> {
        let name = authority.own("internal");
        let told = self.settings.authority.as_ref();
        let behind = told.map_or(Behind::Pods, |told| behind(&told.url));
        let wanted = service(authority, &name, &behind);
        let found = self.calls.get(Kind::Service, &name).await?;
        match &found {
            None => {
                self.calls
                    .create(Kind::Service, &name.namespace, &wanted)
                    .await?;
            }
            Some(found) if !says(found, &wanted) => {
                let meta = Meta::read(found);
                let version = meta.map(|meta| meta.version).unwrap_or_default();
                let patch = json!({
                    "metadata": {
                        "resourceVersion": version,
                        "labels": wanted.pointer("/metadata/labels"),
                    },
                    "spec": wanted.get("spec"),
                });
                self.calls.patch(Kind::Service, &name, &patch).await?;
            }
            Some(_) => {}
        }
        if let Behind::Address(address, port) = behind
            && leads_elsewhere(address)
        {
            self.endpoints(authority, &name, address, port).await?;
        }
        Ok(name.name)
    }

    /// A Service without pods leads where an EndpointSlice says.
    async fn endpoints(
        &self,
        authority: &AuthorityObject,
        service: &ObjectName,
        address: IpAddr,
        port: u16,
    ) -> Pass<()> {
        let wanted = json!({
            "apiVersion": "discovery.k8s.io/v1",
            "kind": "EndpointSlice",
            "metadata": {
                "name": service.name,
                "namespace": service.namespace,
                "labels": {"kubernetes.io/service-name": service.name},
                "ownerReferences": [controller_reference(
                    Kind::CertificateAuthority.word(), &authority.meta)],
            },
            "addressType": if address.is_ipv4() { "IPv4" } else { "IPv6" },
            "endpoints": [{"addresses": [address.to_string()]}],
            "ports": [{"name": "https", "port": port, "protocol": "TCP"}],
        });
        let kind = Kind::EndpointSlice;
        match self.calls.get(kind, service).await? {
            None => {
                self.calls.create(kind, &service.namespace, &wanted).await?;
            }
            Some(found) if !says(&found, &wanted) => {
                let patch =
                    json!({"endpoints": wanted.get("endpoints"), "ports": wanted.get("ports")});
                self.calls.patch(kind, service, &patch).await?;
            }
            Some(_) => {}
        }
        Ok(())
    }
}

/// Whether pods can reach an address. The API server takes no others.
fn leads_elsewhere(address: IpAddr) -> bool {
    let is_link_local = match address {
        IpAddr::V4(address) => address.is_link_local(),
        IpAddr::V6(address) => address.is_unicast_link_local(),
    };
    !(address.is_loopback() || address.is_unspecified() || address.is_multicast() || is_link_local)
}

fn behind(url: &str) -> Behind {
    let uri: Option<Uri> = url.parse().ok();
    let uri = uri.as_ref();
    let host = uri.and_then(Uri::host).unwrap_or_default();
    let port = uri.and_then(Uri::port_u16).unwrap_or(PORT);
    let bare = host.trim_start_matches('[').trim_end_matches(']');
    match bare.parse::<IpAddr>() {
        Ok(address) => Behind::Address(address, port),
        Err(_) if host.is_empty() => Behind::Pods,
        Err(_) => Behind::Host(host.to_owned()),
    }
}

fn service(authority: &AuthorityObject, name: &ObjectName, behind: &Behind) -> Value {
    let ports = json!([{"name": "https", "port": PORT, "protocol": "TCP", "targetPort": PORT}]);
    let spec = match behind {
        Behind::Pods => json!({
            "type": "ClusterIP",
            // A label of the CA's own: two CAs in one namespace are two.
            "selector": {
                "openvox.voxpupuli.org/ca": "true",
                AUTHORITY_LABEL: authority.meta.name.name,
            },
            "ports": ports,
        }),
        // The pods of a CA that was there before are none of it.
        Behind::Host(host) => json!({
            "type": "ExternalName", "externalName": host, "selector": null, "ports": ports,
        }),
        Behind::Address(_, port) => {
            json!({"type": "ClusterIP", "selector": null, "ports": [
                {"name": "https", "port": PORT, "protocol": "TCP", "targetPort": port},
            ]})
        }
    };
    json!({
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {
            "name": name.name,
            "namespace": name.namespace,
            "labels": {
                "app.kubernetes.io/name": "openvox",
                "app.kubernetes.io/managed-by": "openvox-operator",
                AUTHORITY_LABEL: authority.meta.name.name,
            },
            "ownerReferences": [controller_reference(
                Kind::CertificateAuthority.word(), &authority.meta)],
        },
        "spec": spec,
    })
}

/// Whether an object has everything that is wanted of it; what else it has does not count, and who owns it is not changed.
fn says(found: &Value, wanted: &Value) -> bool {
    match (found, wanted) {
        (Value::Object(found), Value::Object(wanted)) => wanted
            .iter()
            .filter(|(key, _)| *key != "ownerReferences")
            .all(|(key, value)| match found.get(key) {
                Some(found) => says(found, value),
                None => value.is_null(),
            }),
        (Value::Array(found), Value::Array(wanted)) => {
            found.len() == wanted.len() && found.iter().zip(wanted).all(|(a, b)| says(a, b))
        }
        (found, wanted) => found == wanted,
    }
}

/// Puppet's.
const PORT: u16 = 8140;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_service_leads_to_the_authority() {
        let ca = json!({"metadata": {"name": "ca", "namespace": "ns", "uid": "u"}, "spec": {}});
        let ca = AuthorityObject::read(&ca).unwrap();
        for (url, expected) in [
            (
                "https://10.0.0.7:9140",
                json!({"type": "ClusterIP", "selector": null, "ports": [{"port": 8140, "targetPort": 9140}]}),
            ),
            (
                "https://[2001:db8::7]",
                json!({"type": "ClusterIP", "selector": null, "ports": [{"port": 8140, "targetPort": 8140}]}),
            ),
            (
                "https://ca.example.com:8140",
                json!({"type": "ExternalName", "externalName": "ca.example.com"}),
            ),
        ] {
            let made = service(&ca, &ca.own("internal"), &behind(url));
            assert!(says(&made["spec"], &expected), "{url}: {made:#}");
        }
        let made = service(&ca, &ca.own("internal"), &Behind::Pods);
        assert_eq!(made["spec"]["selector"][AUTHORITY_LABEL], json!("ca"));
        assert!(says(&made, &made));
        let mut other = made.clone();
        other["spec"]["ports"][0]["port"] = json!(1);
        assert!(!says(&other, &made));
    }
}
