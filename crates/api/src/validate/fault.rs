//! What can be wrong with a manifest, beyond the reasons that PureLB has for objects in a cluster.

use purelb_core::reason::Reason;

/// Why a manifest will not do, or only just.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error, strum::IntoStaticStr)]
pub enum Fault {
    /// Something the daemons would say of the object as well.
    #[error(transparent)]
    Known(#[from] Reason),

    /// The text is not YAML.
    #[error("this is not YAML: {problem}")]
    YamlSyntax {
        /// What the parser says.
        problem: String,
    },

    /// An object of ours without a version.
    #[error("apiVersion is missing; write {instead}")]
    VersionMissing {
        /// The version that its author most likely meant.
        instead: &'static str,
    },

    /// An object of ours with a version that does not exist.
    #[error("there is no apiVersion {written:?}; write {instead}")]
    VersionUnknown {
        /// The version as it was written.
        written: String,
        /// What its author most likely meant.
        instead: &'static str,
    },

    /// An object of one of our API groups, of a kind that the group does not have.
    #[error("{group} has no kind {written:?}; write {instead}")]
    KindUnknown {
        /// The API group.
        group: &'static str,
        /// The kind as it was written.
        written: String,
        /// What its author most likely meant.
        instead: &'static str,
    },

    /// An object without a name.
    #[error("the object has no name; write one under metadata.name")]
    NameMissing,

    /// A field the schema does not know.
    #[error("there is no such field; the API server refuses or drops it{hint}")]
    FieldUnknown {
        /// What its author may have meant, beginning with `: `; empty if nothing comes to mind.
        hint: String,
    },

    /// The schema does not allow the value.
    #[error("the API server refuses this: {answer}{hint}")]
    SchemaViolated {
        /// The API server's words.
        answer: String,
        /// What to do, beginning with `; `; empty if the answer says it.
        hint: &'static str,
    },

    /// More or fewer sources than one in a v2 group.
    #[error("exactly one of local, remote, or external must be specified, but there is {found}; keep one")]
    SourceCount {
        /// The sources that are written, such as `local and remote`.
        found: String,
    },

    /// A source that v1 does not know.
    #[error(
        "groups of purelb.io/v1 decide by themselves where they announce, so they cannot have {source_field}; write \
         apiVersion: purelb.io/v2, or write the pools under local"
    )]
    SourceInV1 {
        /// `remote` or `external`.
        source_field: &'static str,
    },

    /// v1's single range in a v2 group.
    #[error(
        "pool, subnet and aggregation directly under local belong to purelb.io/v1; write them as an entry of v4pools or v6pools, \
         or write apiVersion: purelb.io/v1"
    )]
    SingleRangeInV2,

    /// The same object twice.
    #[error("the same object is written at {first} already; delete one of them")]
    ObjectDuplicate {
        /// File and line of the first.
        first: String,
    },

    /// The interface of virtual addresses is not among those that are advertised.
    #[error(
        "LBNodeAgent {agent} puts virtual addresses on {interface}, which no entry of interfaceList stands for, so that they \
         are not advertised; add {interface}"
    )]
    VirtualInterfaceNotImported {
        /// The LBNodeAgent.
        agent: String,
        /// Its virtual interface.
        interface: String,
    },

    /// Groups in namespaces of which at most one can be PureLB's own.
    #[error(
        "this group is in namespace {namespace}, but {other} is not: PureLB reads groups only from the namespace it is installed in \
         (those of purelb.io/v1 and those with placement: Auto from every one); move the groups together"
    )]
    NamespacesDiffer {
        /// The namespace of this group.
        namespace: String,
        /// A group elsewhere, as `namespace/name`.
        other: String,
    },
}

impl Fault {
    /// The word that stands for this fault, such as `FieldUnknown` or `RangeReversed`.
    pub fn name(&self) -> &'static str {
        match self {
            Fault::Known(reason) => reason.name(),
            other => other.into(),
        }
    }
}
