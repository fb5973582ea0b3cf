//! The checks by their names. Policies switch them, explanations name those that failed.

use std::fmt;

macro_rules! checks {
    ($($id:ident $sentence:literal)+) => {
        /// A check of a rule about nodes.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum CheckId {
            $(#[doc = $sentence] $id,)+
        }

        impl CheckId {
            /// All of them, in the order of the manual.
            pub const ALL: &'static [Self] = &[$(Self::$id,)+];

            /// Its name.
            pub fn as_str(self) -> &'static str {
                match self {
                    $(Self::$id => stringify!($id),)+
                }
            }

            /// What must hold, in one sentence.
            pub fn sentence(self) -> &'static str {
                match self {
                    $(Self::$id => $sentence,)+
                }
            }
        }
    };
}

checks! {
    G01 "The request is for the signer that the rule is about."
    G02 "The request has not been approved."
    G03 "The request has not been denied."
    G04 "The request has no certificate yet."
    G05 "The request is not being deleted."
    G06 "The sender of a serving request is in the group system:nodes."
    G07 "The sender of a client request is the node bootstrapper."
    G08 "No more requests wait than there are Machines or Nodes, plus 100."
    G09 "The first PEM block is a PKCS#10 request that can be read."
    G10 "Nothing stands behind the PEM block."
    C01 "The only organization is system:nodes."
    C02 "There are no alternative names."
    C03 "The usages are client auth and digital signature, with or without key encipherment."
    C04 "The common name begins with system:node:."
    C05 "Client certificates are not disabled."
    C06 "The sender is the node bootstrapper, or has the right nodeclient (kube-controller-manager)."
    C07 "The sender's groups are exactly those of the node bootstrapper."
    C08 "The common name names a node."
    C09 "There is no Node of that name yet."
    C10 "A Machine has the node's name as its InternalDNS address."
    C11 "That Machine has not become a Node yet."
    C12 "The request was made between 10 seconds before and 2 hours after that Machine."
    C13 "The node itself asks, and has the right selfnodeclient."
    S01 "The sender is a node: system:node: and a name."
    S02 "The sender is in the groups system:nodes and system:authenticated."
    S03 "There are two or three usages, among them server auth and digital signature."
    S04 "The common name is the sender's name."
    S05 "One of the organizations is system:nodes."
    S06 "There is a DNS name or an IP address."
    S07 "There are no email addresses."
    S08 "There are no URIs."
    S09 "The sender has the right to create certificate signing requests."
    S10 "The requested lifetime is not longer than maxExpirationSeconds."
    K01 "The sender's name begins with system:node:."
    K02 "There is a DNS name or an IP address."
    K03 "The common name is the sender's name."
    K04 "There are no more DNS names than allowedDnsNames."
    K05 "Every DNS name begins with the node's name."
    K06 "Every DNS name matches providerRegex."
    K07 "Every DNS name resolves."
    K08 "Every address that a DNS name resolves to is in providerIpPrefixes."
    K09 "Every IP address of the request is one that a DNS name resolves to."
    K10 "Every IP address of the request is in providerIpPrefixes."
    K11 "The requested lifetime is not longer than maxExpirationSeconds."
    K12 "The provider's own check, which has none."
    R01 "There is a bundle of authorities for what nodes serve."
    R02 "There is a Node of the sender's name."
    R03 "That Node has an InternalIP address."
    R04 "The Node serves a certificate there that leads to the bundle and names the address."
    R05 "An authority of the bundle itself has issued that certificate, for servers, and it is valid now."
    R06 "That certificate's common name is the sender's name."
    R07 "That certificate's common name is the request's."
    R08 "That certificate has exactly the alternative names of the request."
    M01 "A Machine has become the Node of that name."
    M02 "That Machine has every DNS name of the request."
    M03 "That Machine has every IP address of the request."
    M04 "The names and addresses are exactly the Hostname and InternalIP addresses of the Node."
    M05 "Every IP address of the request is an address of the Node, or its provided address."
    E01 "The cluster's Network can be read."
    E02 "The network is OpenShiftSDN."
    E03 "The node serves a certificate now."
    E04 "R05, R06 and R07 hold."
    E05 "That certificate has exactly the names of the request, addresses aside."
    E06 "The node's HostSubnet can be read."
    E07 "Every network of egressCIDRs can be read."
    E08 "Every IP address is in that certificate, in egressIPs or in egressCIDRs."
    Z01 "The signer would sign the request."
    X01 "The request is neither denied nor failed, and has no certificate."
    X02 "Nothing is approved that the signer would refuse."
    X03 "The node's name is a lower-case DNS name."
    X04 "Addresses are compared as numbers, not as text."
    X05 "Names are compared without regard to case and one final dot, on both sides."
    X06 "Exactly one Machine matches, and it is not being deleted."
    X07 "Only a definite negative answer of the resolver counts."
    X08 "Every DNS name is the node's name, or goes on with a dot behind it."
    X09 "Every IP address is confirmed by a Machine, the inventory or a DNS name of the node."
    X10 "The configuration is valid."
    X11 "The Machines can be listed."
    X12 "No other key has been approved for the node within the hour."
    X13 "The request is among those that go first when too many wait."
    X14 "The reasons are visible."
    X15 "providerRegex matches the whole name."
    X16 "There is one common name, and one PEM block."
    X17 "Only what may still appear is tried again."
}

impl CheckId {
    /// The check of that name.
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.iter().copied().find(|id| id.as_str() == name)
    }
}

impl fmt::Display for CheckId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}
