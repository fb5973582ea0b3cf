//! Which action a request is, told by its method and path, as API servers read those before they route them.

use super::evaluate::{Attributes, PathAction, ResourceAction};

impl<'a> Attributes<'a> {
    /// The action of a request. `watch`: whether its query says so.
    ///
    /// Below `/api/VERSION/` and `/apis/GROUP/VERSION/` are resources, everything else are paths.
    #[must_use]
    pub fn of_request(method: &'a str, path: &'a str, watch: bool) -> Self {
        let segments: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
        let (group, parts) = match segments.as_slice() {
            ["api", _, parts @ ..] => ("", parts),
            ["apis", group, _, parts @ ..] => (*group, parts),
            _ => ("", [].as_slice()),
        };
        let (parts, watch) = match parts {
            ["watch", parts @ ..] => (parts, true),
            parts => (parts, watch),
        };
        let (namespace, parts) = match parts {
            ["namespaces", namespace, parts @ ..]
                if !matches!(parts, [] | ["status" | "finalize"]) =>
            {
                (*namespace, parts)
            }
            ["namespaces", namespace, ..] => (*namespace, parts),
            parts => ("", parts),
        };
        let (resource, name, subresource) = match parts {
            [] => {
                return Self::Path(PathAction {
                    verb: method_word(method),
                    path,
                });
            }
            [resource] => (*resource, "", ""),
            [resource, name] => (*resource, *name, ""),
            [resource, name, subresource, ..] => (*resource, *name, *subresource),
        };
        let verb = match (method, name) {
            ("POST", _) => "create",
            ("GET" | "HEAD", _) if watch => "watch",
            ("GET" | "HEAD", "") => "list",
            ("GET" | "HEAD", _) => "get",
            ("PUT", _) => "update",
            ("PATCH", _) => "patch",
            ("DELETE", "") => "deletecollection",
            ("DELETE", _) => "delete",
            _ => "",
        };
        Self::Resource(ResourceAction {
            verb,
            group,
            resource,
            subresource,
            name,
            namespace,
        })
    }
}

/// A method in lower case.
fn method_word(method: &str) -> &str {
    let words = ["get", "head", "post", "put", "patch", "delete", "options"];
    let lower = words.iter().find(|word| word.eq_ignore_ascii_case(method));
    lower.copied().unwrap_or(method)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rstest::rstest;

    #[rstest]
    #[case("GET", "/api/v1/pods", "list  pods")]
    #[case("GET", "/api/v1/namespaces", "list  namespaces")]
    #[case("GET", "/api/v1/namespaces/a", "get  namespaces a in a")]
    #[case(
        "PUT",
        "/api/v1/namespaces/a/status",
        "update  namespaces/status a in a"
    )]
    #[case("GET", "/api/v1/namespaces/a/pods", "list  pods in a")]
    #[case("DELETE", "/api/v1/namespaces/a/pods", "deletecollection  pods in a")]
    #[case("GET", "/api/v1/namespaces/a/pods/b/log/", "get  pods/log b in a")]
    #[case("PATCH", "/apis/g/v1/things/b/status", "patch g things/status b")]
    #[case("POST", "/apis/g/v1/things", "create g things")]
    #[case("GET", "/apis/g/v1/watch/things", "watch g things")]
    #[case(
        "GET",
        "/apis/g/v1/watch/namespaces/a/things/b",
        "watch g things b in a"
    )]
    #[case("GET", "/apis/g/v1", "get /apis/g/v1")]
    #[case("GET", "/api/v1", "get /api/v1")]
    #[case("POST", "/anything/else", "post /anything/else")]
    fn requests_are_actions(#[case] method: &str, #[case] path: &str, #[case] expected: &str) {
        let told = match Attributes::of_request(method, path, false) {
            Attributes::Path(action) => format!("{} {}", action.verb, action.path),
            Attributes::Resource(action) => {
                let mut told = format!("{} {} {}", action.verb, action.group, action.resource);
                for (before, part) in [
                    ("/", action.subresource),
                    (" ", action.name),
                    (" in ", action.namespace),
                ] {
                    if !part.is_empty() {
                        told.push_str(before);
                        told.push_str(part);
                    }
                }
                told
            }
        };
        assert_eq!(told, expected);
    }
}
