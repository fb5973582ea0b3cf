//! `nodeServing`: the certificate that a node shows to those who call it.

use std::net::IpAddr;

use crate::kinds::{Checked, Found, Looking};
use crate::node::check::CheckId::*;
use crate::node::client::{BOOTSTRAPPER, ClientShape, is_usage_set, shown};
use crate::node::common::{AUTHENTICATED, NODE_PREFIX, NODES, node_of};
use crate::node::compare::{IP_KINDS, NAME_KINDS, is_bound, of_kinds};
use crate::node::facts::{ClusterMachine, ClusterQuery, NameAnswer};
use crate::node::judge::{Judge, Step};
use crate::node::rule::{Compat, Extent, NameOptions, NodeServingRule, Outcome, Preset, Profile};
use crate::reason::ReasonCode;

impl Looking<'_> {
    pub(crate) fn node_serving(&self, rule: &NodeServingRule) -> Found {
        let profile = Profile {
            preset: rule.preset,
            compat: rule.compat,
            checks: &rule.checks,
            names: Some(&rule.names),
        };
        let mut judge = Judge::new(self, profile, rule.skip_deny);
        let ended = judge.serving_request(rule);
        judge.finish(ended)
    }
}

/// What the DNS names of a request resolve to; empty where they were not resolved.
type Resolved = Vec<(String, Vec<IpAddr>)>;

impl Judge<'_> {
    fn serving_request(&mut self, rule: &NodeServingRule) -> Step<Checked> {
        self.is_open(SERVING_SIGNER)?;
        self.of_a_node()?;
        self.queue()?;
        if rule.preset == Preset::ClusterMachineApprover && rule.compat == Compat::Exact {
            self.not_a_client()?;
        }
        self.identity(&rule.names)?;
        let node = node_of(self.asked.username).unwrap_or_default().to_owned();
        self.own_addresses(&node)?;
        self.may_create()?;
        match rule.preset {
            Preset::KubeletCsrApprover => {
                let resolved = self.resolvable(&node, &rule.names)?;
                self.by_names(&node, &resolved)
            }
            Preset::ClusterMachineApprover | Preset::Hardened | Preset::KubeControllerManager => {
                match self.resolves_first(&rule.names) {
                    true => drop(self.resolvable(&node, &rule.names)?),
                    false => self.within_bounds(&rule.names)?,
                }
                self.by_evidence(rule, &node)
            }
        }
    }

    /// Whether names must resolve whatever else speaks for the request: where the policy says so. Else DNS is one way among
    /// others to find out whose they are.
    fn resolves_first(&self, names: &NameOptions) -> bool {
        let is_named = [K07, K08, K09]
            .into_iter()
            .any(|check| self.profile.is_named(check));
        is_named || names.bypass_dns_resolution == Some(false) && self.has(K07)
    }

    /// G06, and S02 with it.
    fn of_a_node(&mut self) -> Step<()> {
        let groups = self.asked.groups;
        let is_in = |group: &str| groups.iter().any(|own| own == group);
        let mark = self.mark();
        self.require(G06, is_in(NODES), || {
            format!("the sender is not in the group {NODES}")
        });
        if self.mark() > mark {
            self.require(S02, false, || format!("the group {NODES} is missing"));
        }
        self.settle(mark)
    }

    /// The product takes what looks like a client request for one, whatever its signer. No sender passes both filters.
    fn not_a_client(&mut self) -> Step<()> {
        if !ClientShape::of(self).is_client() {
            return Ok(());
        }
        let mark = self.mark();
        let username = self.asked.username.to_owned();
        let is_bootstrapper = username == BOOTSTRAPPER;
        self.require(C06, is_bootstrapper, || {
            format!("this is a client request, and {username:?} is not the node bootstrapper")
        });
        self.require(C07, !is_bootstrapper, || {
            "this is a client request, and the groups are not exactly those of the node bootstrapper"
                .to_owned()
        });
        self.settle(mark)
    }

    /// Everything that can be said without asking anybody.
    fn identity(&mut self, names: &NameOptions) -> Step<()> {
        let mark = self.mark();
        let username = self.asked.username.to_owned();
        let common_name = self.asked.common_name.to_owned();
        let node = node_of(&username);
        let not_a_node = || format!("{username:?} is not a node: {NODE_PREFIX} and a name");
        self.require(K01, node.is_some(), not_a_node);
        self.require(S01, node.is_some_and(|node| !node.is_empty()), not_a_node);
        self.form();
        let groups = self.asked.groups;
        let missing = [NODES, AUTHENTICATED]
            .into_iter()
            .find(|needed| !groups.iter().any(|group| group == needed));
        self.require(S02, missing.is_none(), || {
            format!("the group {} is missing", missing.unwrap_or_default())
        });
        let usages = &self.asked.usages;
        let is_serving = matches!(usages.len(), 2 | 3)
            && ["digital signature", "server auth"]
                .iter()
                .all(|needed| usages.contains(needed));
        let shown_usages = shown(usages);
        self.require(S03, is_serving, || {
            format!("the usages are {shown_usages}, not those of a server")
        });
        let has_names = !self.asked.dns.is_empty() || !self.asked.ips.is_empty();
        self.require(K02, has_names, || {
            "there is neither a DNS name nor an IP address".to_owned()
        });
        for check in [S04, K03] {
            self.require(check, common_name == username, || {
                format!("the common name {common_name:?} is not the sender's name {username:?}")
            });
        }
        let organizations = shown(&self.asked.organizations);
        let is_node = self.asked.organizations.contains(&NODES);
        self.require(S05, is_node, || {
            format!("the organizations are {organizations}; {NODES} is not among them")
        });
        self.require(S06, has_names, || {
            "there is neither a DNS name nor an IP address".to_owned()
        });
        let (emails, uris) = (shown(&self.asked.emails), shown(&self.asked.uris));
        let (no_emails, no_uris) = (self.asked.emails.is_empty(), self.asked.uris.is_empty());
        self.require(S07, no_emails, || {
            format!("there are email addresses: {emails}")
        });
        self.require(S08, no_uris, || format!("there are URIs: {uris}"));
        self.lifetime(names, S10);
        self.node_names([node, node_of(&common_name)]);
        self.name_rules(node.unwrap_or_default(), names);
        self.settle(mark)
    }

    fn lifetime(&mut self, names: &NameOptions, check: crate::node::CheckId) {
        let (asked, most) = (
            self.looking.request.wishes.expiration_seconds,
            names.max_expiration(),
        );
        self.require(check, asked.is_none_or(|asked| asked <= most), || {
            let asked = asked.unwrap_or_default();
            format!("a lifetime of {asked} s is asked for, and at most {most} s are allowed")
        });
    }

    /// K04 to K06.
    fn name_rules(&mut self, node: &str, names: &NameOptions) {
        let dns: Vec<String> = self.asked.dns.iter().map(|n| (*n).to_owned()).collect();
        let count = u64::try_from(dns.len()).unwrap_or(u64::MAX);
        let most = names.allowed_dns_names.unwrap_or(1);
        self.require(K04, count <= most, || {
            format!("there are {count} DNS names, and at most {most} are allowed")
        });
        let extent = match self.has(X15) {
            true => Extent::Whole,
            false => Extent::Anywhere,
        };
        let pattern = names.provider_regex.as_ref().filter(|_| self.has(K06));
        let is_odd = |name: &&String| pattern.is_some_and(|one| !one.matches(name, extent));
        let odd = dns.iter().find(is_odd);
        // Under `hardened` a Machine may know a name that is not the node's own, unless the policy says otherwise.
        let is_first = self.profile.preset != Preset::Hardened
            || self.profile.is_named(K05)
            || self.profile.is_named(X08)
            || names.bypass_hostname_check == Some(false);
        if is_first || odd.is_some() {
            self.own_names(node, names);
        }
        if let (Some(name), Some(pattern)) = (odd, pattern) {
            let text = format!("the DNS name {name:?} does not match {}", pattern.source());
            self.fail_both(K06, X15, text);
        }
    }

    /// K05 and X08.
    fn own_names(&mut self, node: &str, names: &NameOptions) {
        let applies = self.has(K05) || self.profile.is_named(X08);
        if !applies || names.bypasses_hostname() {
            return;
        }
        let (prefix, boundary) = (self.has(K05), self.has(X08));
        let is_loose =
            |name: &&&str| prefix && !name.starts_with(node) || boundary && !is_bound(name, node);
        if let Some(name) = self.asked.dns.iter().find(is_loose) {
            let text =
                format!("the DNS name {name:?} is not the node's name {node:?}, nor below it");
            self.fail_both(K05, X08, text);
        }
    }

    /// M04 and M05, where they are asked for: what a Node says of itself may speak against a request, never for it.
    fn own_addresses(&mut self, node: &str) -> Step<()> {
        if !self.has(M04) && !self.has(M05) {
            return Ok(());
        }
        let mark = self.mark();
        match self.node(node)? {
            Ok(Some(known)) => {
                let numbers = |kinds: &[&str]| -> Vec<IpAddr> {
                    let all = of_kinds(&known.addresses, kinds);
                    let parsed = all.filter_map(|text| text.parse::<IpAddr>().ok());
                    parsed.map(|address| address.to_canonical()).collect()
                };
                let internal = numbers(&["InternalIP"]);
                let hostnames: Vec<&str> = of_kinds(&known.addresses, &["Hostname"]).collect();
                let same_names = self.asked.dns.iter().all(|name| hostnames.contains(name))
                    && hostnames.iter().all(|name| self.asked.dns.contains(name));
                let same_ips = self.asked.ips.iter().all(|ip| internal.contains(ip))
                    && internal.iter().all(|ip| self.asked.ips.contains(ip));
                self.require(M04, same_names && same_ips, || {
                    format!("the names and addresses are not exactly those of Node {node}")
                });
                let own = numbers(&[IP_KINDS[0], IP_KINDS[1], PROVIDED_IP]);
                let stranger = self.asked.ips.iter().find(|ip| !own.contains(ip)).copied();
                self.require(M05, stranger.is_none(), || {
                    let stranger = stranger.map(|ip| ip.to_string()).unwrap_or_default();
                    format!("{stranger} is not an address of Node {node}")
                });
            }
            Ok(None) => {
                for check in [M04, M05] {
                    self.fail_as(check, Outcome::Retry, format!("there is no Node {node}"));
                }
            }
            Err(why) => {
                for check in [M04, M05] {
                    let text = format!("Node {node} cannot be read: {why}");
                    self.fail_as(check, Outcome::Unavailable, text);
                }
            }
        }
        self.settle(mark)
    }

    /// S09, where it is asked for.
    fn may_create(&mut self) -> Step<()> {
        if !self.has(S09) {
            return Ok(());
        }
        let mark = self.mark();
        let username = self.asked.username.to_owned();
        match self.may("")? {
            Ok(true) => {}
            Ok(false) => {
                let text = format!("{username} may not create certificate signing requests");
                self.fail(S09, text);
            }
            Err(why) => {
                let text = format!("the rights of {username} are not known: {why}");
                self.fail_as(S09, Outcome::Unavailable, text);
            }
        }
        self.settle(mark)
    }

    /// K07 to K11.
    fn resolvable(&mut self, node: &str, names: &NameOptions) -> Step<Resolved> {
        let mark = self.mark();
        let resolved = self.resolve(node, names)?;
        self.bounds(names);
        self.settle(mark)?;
        Ok(resolved)
    }

    /// K10 and K11.
    fn within_bounds(&mut self, names: &NameOptions) -> Step<()> {
        let mark = self.mark();
        self.bounds(names);
        self.settle(mark)
    }

    fn bounds(&mut self, names: &NameOptions) {
        let outside = self
            .asked
            .ips
            .iter()
            .find(|ip| !names.allows(**ip))
            .copied();
        self.require(K10, outside.is_none(), || {
            let outside = outside.map(|ip| ip.to_string()).unwrap_or_default();
            format!("{outside} is in none of providerIpPrefixes")
        });
        self.lifetime(names, K11);
    }

    /// K07 to K09.
    fn resolve(&mut self, node: &str, names: &NameOptions) -> Step<Resolved> {
        let mark = self.mark();
        let mut resolved = Resolved::new();
        if names.bypasses_dns() || !self.has(K07) {
            return Ok(resolved);
        }
        let dns: Vec<String> = self.asked.dns.iter().map(|n| (*n).to_owned()).collect();
        self.ask_together(dns.iter().cloned().map(ClusterQuery::Name))?;
        for name in &dns {
            match self.name(name)? {
                NameAnswer::Addresses(found) if !found.is_empty() => {
                    self.sees(format!("DNS {name}"));
                    let found = found.iter().map(IpAddr::to_canonical).collect();
                    resolved.push((name.clone(), found));
                }
                NameAnswer::Addresses(_) | NameAnswer::Nothing => {
                    self.fail(K07, format!("the DNS name {name:?} does not resolve"));
                }
                NameAnswer::Timeout => {
                    self.unresolved(name, "the resolver did not answer in time");
                }
                NameAnswer::Failure(why) => self.unresolved(name, &why),
            }
        }
        if self.mark() > mark || dns.is_empty() {
            return Ok(resolved);
        }
        let mut all = resolved.iter().flat_map(|(_, found)| found).copied();
        let outside = all.find(|ip| !names.allows(*ip));
        self.require(K08, outside.is_none(), || {
            let outside = outside.map(|ip| ip.to_string()).unwrap_or_default();
            format!("a DNS name resolves to {outside}, which is in none of providerIpPrefixes")
        });
        let is_known = |ip: &IpAddr| resolved.iter().any(|(_, found)| found.contains(ip));
        let stranger = self.asked.ips.iter().find(|ip| !is_known(ip)).copied();
        self.require(K09, stranger.is_none(), || {
            let stranger = stranger.map(|ip| ip.to_string()).unwrap_or_default();
            format!("no DNS name of {node} resolves to {stranger}")
        });
        Ok(resolved)
    }

    /// K07 without an answer. With X07 that says nothing about the name.
    fn unresolved(&mut self, name: &str, why: &str) {
        let text = format!("the DNS name {name:?} cannot be resolved: {why}");
        match self.has(X07) {
            true => {
                self.fail_as(K07, Outcome::Unavailable, text.clone());
                self.fail_as(X07, Outcome::Unavailable, text);
            }
            false => self.fail(K07, text),
        }
    }

    /// What is left for kubelet-csr-approver: X09 and the closing checks.
    fn by_names(&mut self, node: &str, resolved: &Resolved) -> Step<Checked> {
        let mark = self.mark();
        let unconfirmed = self.unconfirmed(node, resolved);
        if self.has(X09) && !unconfirmed.is_empty() {
            self.confirmed_by_machine(node, &unconfirmed)?;
        }
        self.settle(mark)?;
        self.approve(
            node,
            ReasonCode::Dns,
            format!("the names and addresses of {node} are as expected"),
        )
    }

    /// The addresses that no DNS name of the node resolves to.
    fn unconfirmed(&self, node: &str, resolved: &Resolved) -> Vec<IpAddr> {
        let is_confirmed = |ip: &IpAddr| {
            let mut own = resolved.iter().filter(|(name, _)| is_bound(name, node));
            own.any(|(_, found)| found.contains(ip))
        };
        let ips = self.asked.ips.iter().copied();
        ips.filter(|ip| !is_confirmed(ip)).collect()
    }

    fn confirmed_by_machine(&mut self, node: &str, addresses: &[IpAddr]) -> Step<()> {
        let machines = match self.machines()? {
            Ok(machines) => machines,
            Err(why) => {
                self.without_machines(X09, &why);
                return Ok(());
            }
        };
        let comparison = self.comparison();
        let is_of_node = |machine: &&ClusterMachine| {
            !machine.deleting && (machine.is_node(node) || machine.is_inventory_of(node))
        };
        let of_node: Vec<&ClusterMachine> = machines.iter().filter(is_of_node).collect();
        let mut providers = of_node.iter().filter(|machine| !machine.is_of_inventory());
        if let (true, Some(one), Some(other)) = (self.has(X06), providers.next(), providers.next())
        {
            let text = format!(
                "Machines {} and {} both have become Node {node}",
                one.name, other.name
            );
            self.fail_as(X09, Outcome::Pend, text.clone());
            self.fail_as(X06, Outcome::Pend, text);
            return Ok(());
        }
        let stranger = addresses.iter().find(|ip| {
            let has = |machine: &&ClusterMachine| comparison.has_address(machine, **ip);
            !of_node.iter().any(has)
        });
        if let Some(stranger) = stranger {
            let text = format!(
                "nothing but the request itself says that {stranger} is an address of {node}"
            );
            let outcome = match of_node.is_empty() {
                true => Outcome::Retry,
                false => Outcome::Pend,
            };
            self.fail_as(X09, outcome, text);
        }
        Ok(())
    }

    /// Renewal, Machine, inventory, egress and DNS: the first that speaks for the request approves it.
    fn by_evidence(&mut self, rule: &NodeServingRule, node: &str) -> Step<Checked> {
        let is_hardened = rule.preset == Preset::Hardened;
        let renews = self.has(R01).then(|| ClusterQuery::Node(node.to_owned()));
        let bundle = renews.as_ref().filter(|_| rule.ca_bundle.is_none());
        let bundle = bundle.map(|_| ClusterQuery::Bundle);
        let machines = self.has(M01).then_some(ClusterQuery::Machines);
        self.ask_together([machines, bundle, renews].into_iter().flatten())?;
        if !is_hardened && self.has(M01) {
            // The product lists the Machines before it looks at anything.
            if let Err(why) = self.machines()? {
                self.without_machines(M01, &why);
                return Err(self.exhausted());
            }
        }
        let served = self.served(rule, node)?;
        if let Some(served) = &served
            && self.is_renewal(served)
        {
            let reason = format!("{node} serves a certificate with the same names now");
            return self.approve(node, ReasonCode::Renewal, reason);
        }
        if let Some(machine) = self.by_machine(node)? {
            let reason = format!("Machine {machine} has every name and address of the request");
            return self.approve(node, ReasonCode::Machine, reason);
        }
        if is_hardened && let Some(machine) = self.by_inventory(node)? {
            let reason =
                format!("the inventory's {machine} has every name and address of the request");
            return self.approve(node, ReasonCode::Machine, reason);
        }
        if self.by_egress(rule, node, served.as_ref())? {
            let reason = format!(
                "{node} serves a certificate with the same names, and its egress addresses are the rest"
            );
            return self.approve(node, ReasonCode::Egress, reason);
        }
        if is_hardened && self.by_dns(node, &rule.names)? {
            let reason = format!("the DNS names of {node} resolve to every address of the request");
            return self.approve(node, ReasonCode::Dns, reason);
        }
        Err(self.exhausted())
    }

    /// M01 to M03. Which Machine speaks for the request.
    fn by_machine(&mut self, node: &str) -> Step<Option<String>> {
        if !self.has(M01) {
            return Ok(None);
        }
        let machines = match self.machines()? {
            Ok(machines) => machines,
            Err(why) => {
                self.without_machines(M01, &why);
                return Ok(None);
            }
        };
        let what = format!("has become Node {node}");
        let found = self.one_machine(M01, &machines, &what, |machine| {
            !machine.is_of_inventory() && machine.is_node(node)
        });
        Ok(found
            .filter(|machine| self.covers(machine))
            .map(|machine| machine.name.clone()))
    }

    /// M02 and M03 for the inventory's own record of the node. Where there is none, the inventory is not asked.
    fn by_inventory(&mut self, node: &str) -> Step<Option<String>> {
        if !self.has(M01) {
            return Ok(None);
        }
        let Ok(machines) = self.machines()? else {
            return Ok(None);
        };
        let mut records = machines
            .iter()
            .filter(|machine| machine.is_inventory_of(node));
        let found = records.next().filter(|machine| !machine.deleting);
        Ok(found
            .filter(|machine| self.covers(machine))
            .map(|machine| machine.name.clone()))
    }

    /// Whether a Machine has every name and address that is asked for.
    fn covers(&mut self, machine: &ClusterMachine) -> bool {
        let comparison = self.comparison();
        let mark = self.mark();
        // A list without any entry has not been filled in yet.
        let fail = |judge: &mut Self, check, text| match machine.addresses.is_empty() {
            true => judge.fail_as(check, Outcome::Retry, text),
            false => judge.fail(check, text),
        };
        let mut names = self.asked.dns.iter().filter(|name| !name.is_empty());
        let strange = names.find(|name| !comparison.has_name(machine, &NAME_KINDS, name));
        let name = &machine.name;
        if let Some(strange) = strange.map(|strange| (*strange).to_owned()) {
            let text = format!("the DNS name {strange:?} is not an address of Machine {name}");
            fail(self, M02, text);
        }
        let mut ips = self.asked.ips.iter();
        let strange = ips
            .find(|ip| !comparison.has_address(machine, **ip))
            .copied();
        if let Some(strange) = strange {
            let text = format!("{strange} is not an address of Machine {name}");
            fail(self, M03, text);
        }
        self.mark() == mark
    }

    /// The names are the node's own, and resolve to every address: K05 with X08, K07 to K09, and X09. Only where the policy
    /// says something about names.
    fn by_dns(&mut self, node: &str, names: &NameOptions) -> Step<bool> {
        if self.asked.dns.is_empty() || names.bypasses_dns() || !self.has(K07) {
            return Ok(false);
        }
        let mark = self.mark();
        self.own_names(node, names);
        if self.mark() > mark {
            return Ok(false);
        }
        let resolved = self.resolve(node, names)?;
        if self.mark() > mark {
            return Ok(false);
        }
        // Whatever is switched off, a foreign name is no evidence.
        let loose = resolved.iter().find(|(name, _)| !is_bound(name, node));
        let unconfirmed = self.unconfirmed(node, &resolved);
        if let Some((name, _)) = loose {
            let text =
                format!("the DNS name {name:?} is not the node's name {node:?}, nor below it");
            self.fail_as(X08, Outcome::Pend, text);
        }
        if let Some(stranger) = unconfirmed.first() {
            let text = format!("no DNS name of {node} resolves to {stranger}");
            self.fail_as(X09, Outcome::Pend, text);
        }
        Ok(loose.is_none() && unconfirmed.is_empty())
    }

    pub(super) fn approve(
        &mut self,
        node: &str,
        code: ReasonCode,
        reason: String,
    ) -> Step<Checked> {
        let refusal = self.serving_refusal();
        self.close(node, refusal)?;
        Ok(self.approved(code, reason))
    }

    /// Z01: what the signer of serving certificates would say.
    fn serving_refusal(&self) -> Option<String> {
        let asked = &self.asked;
        let fault = if asked.organizations != [NODES] {
            "the subject organization is not system:nodes"
        } else if asked.dns.is_empty() && asked.ips.is_empty() {
            "a DNS name or an IP address is required"
        } else if !asked.emails.is_empty() {
            "email addresses are not allowed"
        } else if !asked.uris.is_empty() {
            "URIs are not allowed"
        } else if !is_usage_set(&asked.usages, "server auth") {
            "the usages are not those of a server"
        } else if !asked.common_name.starts_with(NODE_PREFIX) {
            "the common name does not begin with system:node:"
        } else {
            return None;
        };
        Some(fault.to_owned())
    }
}

/// The signer of serving certificates of nodes.
pub(super) const SERVING_SIGNER: &str = "kubernetes.io/kubelet-serving";
/// The kind under which a Node's provided address stands among its addresses.
pub(super) const PROVIDED_IP: &str = "ProvidedIP";
