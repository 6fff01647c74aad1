// Package plan computes the actions that make the hosts match cluster.yaml, and which hosts of a roll may change next.
// It reads and writes nothing: all that it knows is in its arguments.
package plan

import (
	"time"

	"airlift/installer/multihost/facts"
	"airlift/installer/multihost/spec"
)

// An Input is all that a plan depends on.
type Input struct {
	Spec *spec.Cluster
	// Answers has the answer of each host of the file by its name. It may have answers of other hosts, by the names of
	// their Nodes: only then is a host that the file does not have reset.
	Answers map[string]Answer
	// Changes has what hosts report that a reconfiguration would change there: the answers to Questions, by host.
	Changes map[string]ChangeAnswer
	// Version (v1.37.1), Bundle (its ID) and Arch (GOARCH) describe the file.
	Version, Bundle, Arch string
	// Credentials is the digest of the credentials of registries in the file, "" for none.
	Credentials string
	Options
}

// An Answer has the facts of a host, or why there are none.
type Answer struct {
	Facts *facts.Facts
	Err   error
	// At is the time of the driver's clock when the host read its own.
	At time.Time
}

// Options are flags of the commands.
type Options struct {
	// Remove removes Nodes that the file does not have, and hosts that have to join again.
	Remove bool
	// Skip has names of hosts in the file that are left alone.
	Skip []string
	// Continue goes on after the groups that pause the roll and have the version of the file.
	Continue bool
	// PauseAfter is a group that pauses the roll in this run, as if it had the rule; "" for none.
	PauseAfter string
	// Parallel is how many hosts without a rule may change at once; 0: 10.
	Parallel int
}

// A Plan is what apply does, in order. Stages run one after the other. An empty plan has no stages.
type Plan struct {
	// Cluster is the name in cluster.yaml.
	Cluster string `json:"cluster"`
	Version string `json:"version"` // of the file: v1.37.1
	// Bundle is the ID of the file.
	Bundle string `json:"bundle"`
	// Spec is the digest of cluster.yaml.
	Spec string `json:"spec"`
	// Observed is the sha256 of Seen, hex.
	Observed string `json:"observed"`
	// Seen has the facts that the plan depends on, by host and field. It has nothing that changes by itself, such as
	// times or the last commands. The health of a node is in it only if it decides what the plan does.
	Seen map[string]map[string]string `json:"seen"`
	// Leader is a healthy control plane of the cluster, or on a bare site the one that gets init. Tokens and the commands
	// for the
	// cluster are run there.
	Leader string  `json:"leader"`
	Stages []Stage `json:"stages"`
	// Wait is what the first stage waits for if windows are closed: no host may change now.
	Wait string `json:"wait,omitempty"`
	// Rest is what keeps the hosts from matching the file after the plan. Without stages and a rest, they match.
	Rest []Rest `json:"rest,omitempty"`
	// MayFail are requests that may fail meanwhile: "shop/cart: its only pods are on w1".
	MayFail []string `json:"mayFail,omitempty"`
	// Seconds is how long it may take, without waits for windows. FromRuns is set if that is how long the last commands of these hosts took,
	// and not what others took.
	Seconds  int  `json:"seconds"`
	FromRuns bool `json:"fromRuns,omitempty"`
	// Notes are what the user may want to know.
	Notes []string `json:"notes,omitempty"`
}

// A Stage has actions that may run at once, at most Limit.
type Stage struct {
	Name string `json:"name"` // init, join workers, upgrade GROUP …
	// Group is the group of all hosts of a stage with Roll; "" for control planes of several groups.
	Group   string   `json:"group,omitempty"`
	Limit   int      `json:"limit"`
	Actions []Action `json:"actions"`
	// Seconds is how long the stage may take.
	Seconds int `json:"seconds"`
	// Roll is set if the hosts of the stage serve already: Next chooses its batches by the rules of the group.
	Roll bool `json:"roll,omitempty"`
	// Repair is set if the stage finishes what an earlier run began on hosts of the last batch, whatever their windows are.
	Repair bool `json:"repair,omitempty"`
	// Windows are when hosts of the stage may change: "canary only Sat, Sun 22:00-04:00 UTC". Always, if it is empty.
	Windows []string `json:"windows,omitempty"`
	// Owed is set if the stage changes nothing: it ends when the hosts of the last batch have passed this.
	Owed *Owed `json:"owed,omitempty"`
}

// Verbs of actions. Each is idempotent: apply runs it again after an interruption.
const (
	Init            = "init"           // the first control plane
	Join            = "join"           // another control plane, or a worker
	Unpack          = "upgrade unpack" // a newer file: images and binaries next to the old ones
	UpgradeApply    = "upgrade apply"  // the first control plane; or for add-ons that waited for all nodes
	Upgrade         = "upgrade node"   // any other node
	EndpointApply   = "endpoint apply" // a control plane
	Endpoint        = "endpoint node"  // a worker
	Registry        = "registry enable"
	Reconfigure     = "reconfigure"      // the control plane that gets kubeadm's documents
	ReconfigureNode = "reconfigure node" // any other node follows what the cluster stores
	Renewal         = "certs auto"       // the timer of a control plane
	Backups         = "etcd snapshot"    // the timer of a control plane
	Mirrors         = "registry mirrors" // the site's registries on any node
	NodeMeta        = "labels"           // labels and taints of a Node; runs on the leader
	Remove          = "remove"           // node remove on another control plane, then reset on the host
	RemoveOff       = "remove (is gone)" // node remove of a host that does not answer or is no longer a node
	Pass            = "check"            // of the last batch: waits and checks, and changes nothing
)

// Effects of an action on the pods of its host.
const (
	None    = "none"
	Reload  = "reload"  // a service reads its configuration again
	Restart = "restart" // components restart, and pods keep running. An upgrade with this effect does not drain.
	Drain   = "drain"   // pods move to other nodes
)

// An Action is one command on one host.
type Action struct {
	Host string `json:"host"` // a name in cluster.yaml, or of a Node that is not in it
	Verb string `json:"verb"`
	// From and To are versions of an upgrade.
	From string `json:"from,omitempty"`
	To   string `json:"to,omitempty"`
	// Why is a sentence for the user: "is not a node yet".
	Why string `json:"why"`
	// Effect is what the action does to running pods: none, reload, restart or drain.
	Effect string `json:"effect"`
	// Pods are what moves to other nodes if the effect is drain.
	Pods []facts.PodGroup `json:"pods,omitempty"`
	// Seconds is how long the action may take.
	Seconds int `json:"seconds"`
	// Changes are labels and taints, with + and - in front: "+zone=a", "-zone", "+taint dedicated=db:NoSchedule",
	// "-taint dedicated:NoSchedule". Of a reconfiguration, they are sentences: "restarts kube-scheduler".
	Changes []string `json:"changes,omitempty"`
	// Files are the files of the host and the objects of the cluster that a reconfiguration changes. Of other nodes than the
	// first one, they are known only after that one.
	Files []facts.FileChange `json:"files,omitempty"`
	// Images is set if a reconfiguration gives images other names: it may read the file.
	Images bool `json:"images,omitempty"`
	// More is set if the command ends before it is done, because other control planes must follow first: then it is no failure.
	More bool `json:"more,omitempty"`
	// Adopted is set if the host that is removed is a node that another tool made: "reset" gets the flag --remove-node.
	Adopted bool `json:"adopted,omitempty"`
	// Commands are the arguments of its commands of the installer: what runs is what is printed. Without the path of the file.
	Commands [][]string `json:"commands,omitempty"`
	// Began is set if an earlier run did not finish the action: its host counts as down, because it may be drained.
	Began bool `json:"began,omitempty"`
}

// A Problem is a reason to change nothing.
type Problem struct {
	Host string `json:"host,omitempty"` // "": the whole site
	What string `json:"what"`           // "has the machine-id of host2"
	Why  string `json:"why,omitempty"`
	Hint string `json:"hint"` // can be typed

	isCause bool // others may follow from it
}
