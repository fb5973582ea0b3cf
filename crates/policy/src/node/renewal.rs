//! Renewal against the certificate that a node serves now, and the egress addresses of OpenShift's old network.

use std::net::{IpAddr, SocketAddr};

use countersign_pki::pem::{self, PemLimits};
use countersign_pki::{AltName, Certificate, verify_server_chain};

use crate::node::check::CheckId::*;
use crate::node::client::shown;
use crate::node::compare::of_kinds;
use crate::node::facts::{ClusterFact, ClusterQuery, Egress, ServedChain};
use crate::node::judge::{Judge, Step, misplaced};
use crate::node::rule::{NodeServingRule, Outcome, Preset};
use crate::token::Network;

/// What a node serves now, verified as a client does.
pub(super) struct Served {
    leaf: Certificate,
    anchors: Vec<Certificate>,
    common_name: String,
}

impl Judge<'_> {
    /// R01 to R04. `None`: the method is not tried.
    pub(super) fn served(&mut self, rule: &NodeServingRule, node: &str) -> Step<Option<Served>> {
        if ![R01, R02, R03, R04, R05, R06, R07]
            .into_iter()
            .all(|check| self.has(check))
        {
            return Ok(None);
        }
        let bundle = match &rule.ca_bundle {
            Some(bundle) => Some(bundle.as_str().into()),
            None => match self.cluster(ClusterQuery::Bundle)? {
                Ok(ClusterFact::Bundle(bundle)) => bundle,
                Ok(other) => {
                    self.fail(R01, misplaced(&other));
                    return Ok(None);
                }
                Err(why) => {
                    self.fail(
                        R01,
                        format!("the authorities of what nodes serve cannot be read: {why}"),
                    );
                    return Ok(None);
                }
            },
        };
        let anchors = bundle
            .map(|bundle| certificates(&bundle))
            .unwrap_or_default();
        if anchors.is_empty() {
            self.fail(
                R01,
                "no authorities of what nodes serve are known".to_owned(),
            );
            return Ok(None);
        }
        let known = match self.node(node)? {
            Ok(Some(known)) => known,
            Ok(None) => {
                self.fail(R02, format!("there is no Node {node}"));
                return Ok(None);
            }
            Err(why) => {
                self.fail(R02, format!("Node {node} cannot be read: {why}"));
                return Ok(None);
            }
        };
        let first = of_kinds(&known.addresses, &["InternalIP"]).next();
        let Some(address) = first.and_then(|first| first.parse::<IpAddr>().ok()) else {
            self.fail(R03, format!("Node {node} has no InternalIP address"));
            return Ok(None);
        };
        let dialled = SocketAddr::new(address, known.port);
        self.sees(format!("what is served at {dialled}"));
        let chain = match self.serving(dialled)? {
            ServedChain::Chain(chain) => chain,
            ServedChain::Nothing(why) => {
                self.fail(R04, format!("nothing is served at {dialled}: {why}"));
                return Ok(None);
            }
            ServedChain::Forbidden(why) => {
                self.fail(R04, format!("{dialled} was not dialled: {why}"));
                return Ok(None);
            }
        };
        let mut parsed = Vec::new();
        for der in chain.iter().take(MAX_CHAIN) {
            match Certificate::parse(der) {
                Ok(certificate) => parsed.push(certificate),
                Err(fault) => {
                    self.fail(
                        R04,
                        format!("what is served at {dialled} cannot be read: {fault}"),
                    );
                    return Ok(None);
                }
            }
        }
        let Some((leaf, above)) = parsed.split_first() else {
            self.fail(R04, format!("no certificate is served at {dialled}"));
            return Ok(None);
        };
        let now = self.looking.now;
        if let Err(fault) = verify_server_chain(leaf, above, &anchors, Some(address), now) {
            self.fail(
                R04,
                format!("what is served at {dialled} is not trusted: {fault}"),
            );
            return Ok(None);
        }
        let common_name = leaf.subject().last_common_name().unwrap_or_default();
        Ok(Some(Served {
            common_name: common_name.to_owned(),
            leaf: leaf.clone(),
            anchors,
        }))
    }

    /// R05 to R08.
    pub(super) fn is_renewal(&mut self, served: &Served) -> bool {
        let mark = self.mark();
        if let Some(why) = self.verified_again(served) {
            self.fail(R05, why);
            return false;
        }
        let Served {
            leaf, common_name, ..
        } = served;
        let sender = self.asked.username;
        self.require(R06, common_name == sender, || {
            format!("the certificate served now is for {common_name:?}, not for {sender:?}")
        });
        let asked = self.asked.common_name;
        self.require(R07, common_name == asked, || {
            format!("the certificate served now is for {common_name:?}, not for {asked:?}")
        });
        let own = sorted_names(self.looking.request.csr.alt_names(), |_| true);
        let theirs = sorted_names(leaf.alt_names(), |_| true);
        self.require(R08, own == theirs, || {
            let theirs = shown(&theirs);
            format!("the certificate served now has other names: {theirs}")
        });
        self.mark() == mark
    }

    /// Why a leaf does not verify without the certificates that came with it.
    fn verified_again(&self, served: &Served) -> Option<String> {
        let now = self.looking.now;
        let fault = verify_server_chain(&served.leaf, &[], &served.anchors, None, now).err()?;
        Some(format!(
            "the certificate served now is not trusted by itself: {fault}"
        ))
    }

    /// E01 to E08. Whether the egress addresses explain what is asked for.
    pub(super) fn by_egress(
        &mut self,
        rule: &NodeServingRule,
        node: &str,
        served: Option<&Served>,
    ) -> Step<bool> {
        if ![E01, E02, E03, E04, E06, E07]
            .into_iter()
            .all(|check| self.has(check))
        {
            return Ok(false);
        }
        let kind = match self.cluster(ClusterQuery::Network)? {
            Ok(ClusterFact::Network(kind)) => kind,
            Ok(other) => {
                self.fail_as(E01, Outcome::Unavailable, misplaced(&other));
                return Ok(false);
            }
            Err(why) => {
                let text = format!("the cluster's Network cannot be read: {why}");
                self.fail_as(E01, Outcome::Unavailable, text);
                return Ok(false);
            }
        };
        let kind = match (kind, rule.preset) {
            (Some(kind), _) => kind,
            // Most clusters have no such object.
            (None, Preset::Hardened) => return Ok(false),
            (None, _) => {
                self.fail(E01, "the cluster has no Network".to_owned());
                return Ok(false);
            }
        };
        if kind != EGRESS_NETWORK {
            let text = format!("the network is {kind:?}, which has no egress addresses here");
            self.fail(E02, text);
            return Ok(false);
        }
        let Some(served) = served else {
            self.fail(E03, format!("{node} serves no certificate that is trusted"));
            return Ok(false);
        };
        self.egress_allows(node, served)
    }

    fn egress_allows(&mut self, node: &str, served: &Served) -> Step<bool> {
        let mark = self.mark();
        let is_of_sender = served.common_name == self.asked.username
            && served.common_name == self.asked.common_name;
        let fault = self.verified_again(served).or_else(|| {
            let other = &served.common_name;
            (!is_of_sender).then(|| format!("the certificate served now is for {other:?}"))
        });
        if let Some(fault) = fault {
            self.fail(E04, fault);
            return Ok(false);
        }
        let no_address = |name: &AltName| !matches!(name, AltName::Ip(_));
        let own = sorted_names(self.looking.request.csr.alt_names(), no_address);
        let theirs = sorted_names(served.leaf.alt_names(), no_address);
        self.require(E05, own == theirs, || {
            let theirs = shown(&theirs);
            format!("the certificate served now has other names: {theirs}")
        });
        if self.mark() > mark {
            return Ok(false);
        }
        let egress = match self.cluster(ClusterQuery::Egress(node.to_owned()))? {
            Ok(ClusterFact::Egress(Some(egress))) => egress,
            Ok(ClusterFact::Egress(None)) => {
                self.fail(E06, format!("there is no HostSubnet {node}"));
                return Ok(false);
            }
            Ok(other) => {
                self.fail_as(E06, Outcome::Unavailable, misplaced(&other));
                return Ok(false);
            }
            Err(why) => {
                let text = format!("HostSubnet {node} cannot be read: {why}");
                self.fail_as(E06, Outcome::Unavailable, text);
                return Ok(false);
            }
        };
        self.sees(format!("HostSubnet {node}"));
        self.egress_covers(node, served, &egress);
        Ok(self.mark() == mark)
    }

    /// E07 and E08.
    fn egress_covers(&mut self, node: &str, served: &Served, egress: &Egress) {
        let mut networks = Vec::new();
        for text in &egress.networks {
            match Network::parse(text).filter(|_| text.contains('/')) {
                Some(network) => networks.push(network),
                None => {
                    self.fail(
                        E07,
                        format!("{text:?} in egressCIDRs of {node} is not a network"),
                    );
                    return;
                }
            }
        }
        let current = served
            .leaf
            .alt_names()
            .iter()
            .filter_map(|name| match name {
                AltName::Ip(address) => Some(address.to_canonical()),
                AltName::Dns(_) | AltName::Email(_) | AltName::Uri(_) | AltName::Other { .. } => {
                    None
                }
            });
        let current: Vec<IpAddr> = current.collect();
        let comparison = self.comparison();
        let stranger = self.asked.ips.iter().copied().find(|ip| {
            !current.contains(ip)
                && !egress
                    .addresses
                    .iter()
                    .any(|known| comparison.is_address(*ip, known))
                && !networks.iter().any(|network| network.contains(*ip))
        });
        self.require(E08, stranger.is_none(), || {
            let stranger = stranger.map(|ip| ip.to_string()).unwrap_or_default();
            format!("{stranger} is neither in the certificate served now nor an egress address of {node}")
        });
    }
}

/// The names of the four kinds that count, in an order that does not depend on theirs; addresses in one form.
fn sorted_names(names: &[AltName], counts: impl Fn(&AltName) -> bool) -> Vec<String> {
    let texts = names
        .iter()
        .filter(|name| counts(name))
        .filter_map(|name| match name {
            AltName::Ip(address) => Some(format!("IP:{}", address.to_canonical())),
            AltName::Dns(_) | AltName::Email(_) | AltName::Uri(_) => Some(name.to_string()),
            AltName::Other { .. } => None,
        });
    let mut texts: Vec<String> = texts.collect();
    texts.sort();
    texts
}

/// The certificates of a bundle; what is not one does not count.
fn certificates(bundle: &str) -> Vec<Certificate> {
    let blocks = pem::decode_all(bundle.as_bytes(), &BUNDLE).unwrap_or_default();
    let certificates = blocks.iter().filter(|block| block.label == "CERTIFICATE");
    certificates
        .filter_map(|block| Certificate::parse(&block.der).ok())
        .collect()
}

const EGRESS_NETWORK: &str = "OpenShiftSDN";
/// Certificates that a server may send.
const MAX_CHAIN: usize = 16;
/// Authorities that may have issued what nodes serve.
const BUNDLE: PemLimits = PemLimits {
    max_text: 1024 * 1024,
    max_blocks: 200,
};
