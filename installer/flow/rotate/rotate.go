// Package rotate replaces the CAs of a running cluster. Each node goes through the same stages, and the
// cluster records which stage each node has reached.
package rotate

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"airlift/installer/cluster"
	"airlift/installer/cluster/rotation"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/pki"
	"airlift/installer/pods"
	"airlift/installer/revision"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// Stages of a rotation of the cluster's CAs, which every node goes through in this order. No
// node may begin a stage before all have reached the one before. Until Issue has begun,
// Cancel goes back.
const (
	Distribute = "distribute" // trust the old and the new CAs
	Issue      = "issue"      // the new CAs sign all certificates
	Finish     = "finish"     // trust only the new CAs
	Cancel     = "cancel"     // trust only the old CAs again
)

var order = []string{Distribute, Issue, Finish}

// timeout limits the waits for pods and for the controller manager, without progress.
const timeout = 5 * time.Minute

// Options are the user's options of a stage.
type Options struct {
	Stage string
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
	// CertificatesDir is the directory of the certificates; "" is the directory in the cluster's configuration.
	CertificatesDir string
	// CertificateKey decrypts the new CAs on each control plane but the first, which creates it.
	CertificateKey string
	// RestartWorkloads also restarts the workloads of all namespaces, and not only the add-ons.
	RestartWorkloads bool
}

// A Rotation takes this node through one stage of the rotation of the CAs.
type Rotation struct {
	*node.Machine
	run        *run
	cluster    *clusterState // the state in the cluster
	files      *hostFiles    // the CAs and certificates on this host
	components *components   // what has to read them again
}

// A run has the data that the parts of a Rotation share.
type run struct {
	options Options
	client  *cluster.Client
	config  *config.Config     // the cluster's
	node    string             // the name of this node
	state   *rotation.Rotation // nil until it is known
	done    bool               // this node has reached the stage already
}

// New connects to the cluster, and returns the Rotation of this node.
func New(ctx context.Context, o Options, h *host.Host, console *workflow.Console) (*Rotation, error) {
	r := newRotation(o, node.NewMachine(h, console))
	if err := r.checkNode(); err != nil {
		return nil, err
	}
	var err error
	if r.run.client, err = node.LoadClient(h, r.kubeconfig(), "", 0); err != nil {
		return nil, err
	}
	// An interrupted run may have just restarted the API server: it refuses requests until it has
	// read the permissions.
	if err := r.run.client.WaitForAPI(ctx, timeout, r.Report); err != nil {
		return nil, err
	}
	fetched, err := r.run.client.FetchConfig(ctx)
	if err != nil {
		return nil, err
	}
	r.run.config = &config.Config{Cluster: fetched.Cluster}
	if o.CertificatesDir != "" {
		r.run.config.Cluster.CertificatesDir = o.CertificatesDir
	}
	r.components.pods, err = pods.NewStaticPods(r.run.config, h, console)
	return r, err
}

func newRotation(o Options, m *node.Machine) *Rotation {
	shared := &run{options: o}
	return &Rotation{
		Machine: m, run: shared, cluster: &clusterState{Machine: m, run: shared},
		files: &hostFiles{Machine: m, run: shared}, components: &components{Machine: m, run: shared},
	}
}

// checkNode refuses a host whose CAs cannot be rotated now.
func (r *Rotation) checkNode() error {
	if err := revision.Unfinished(r.Existing); err != nil {
		return err
	}
	r.run.node = pki.NodeName(r.Files())
	switch {
	case r.run.node == "":
		return fault.New(fault.Preflight, "this host is not a node of a cluster: %s does not have a node's name", node.KubeletConf).Hint("run it on a node of the cluster")
	case r.IsControlPlane() && !r.Existing.Records().Manages():
		return node.Managed(r.Existing, "; or rotate the CAs as Kubernetes' documentation describes")
	}
	return nil
}

// kubeconfig is the file with which this node reaches the cluster.
func (r *Rotation) kubeconfig() string {
	switch {
	case r.run.options.Kubeconfig != "":
		return r.run.options.Kubeconfig
	case r.IsControlPlane():
		return node.AdminConf
	}
	return node.KubeletConf
}

// Close gives up the turn of this control plane, and closes the connection to the container runtime.
func (r *Rotation) Close() { r.components.pods.Close() }

// Run runs the stage. It is safe to run it again: after an interruption it finishes the stage.
func (r *Rotation) Run(ctx context.Context) error {
	return workflow.Run(ctx, r.Console, r.steps(), nil)
}

// steps returns the steps of the stage on this node.
func (r *Rotation) steps() []workflow.Step {
	steps := []workflow.Step{{Name: "preflight", Doc: "check this node and the state of the rotation", Run: r.preflight}}
	add := func(name, doc string, run func(context.Context) error) {
		steps = append(steps, workflow.Step{Name: name, Doc: doc, Run: func(ctx context.Context) error {
			if r.run.done {
				return nil
			}
			if err := r.components.pods.Turn.Confirm(ctx); err != nil {
				return err
			}
			return run(ctx)
		}})
	}
	trust := map[string]string{
		Distribute: "trust the old and the new CAs", Issue: "sign all certificates with the new CAs",
		Finish: "trust only the new CAs", Cancel: "trust only the old CAs again",
	}[r.run.options.Stage]
	if r.IsControlPlane() {
		switch r.run.options.Stage {
		case Distribute:
			add("next-cas", "create the new CAs, or get them from the cluster", r.files.nextCAs)
		case Issue:
			add("workloads", "restart the pods that do not trust the new CA yet", r.cluster.restartWorkloads)
		}
		add("certs", trust, r.certs)
		add("control-plane", "restart the static pods, one by one", r.components.restartStaticPods)
		add("kubelet", "restart the kubelet", r.components.restartKubelet)
		add("cluster-info", "publish the CAs to joining nodes", r.cluster.publishCAs)
	} else {
		add("certs", trust, r.files.changeWorker)
		add("kubelet", "restart the kubelet", r.components.restartKubelet)
	}
	return append(steps, workflow.Step{Name: "record", Doc: "record the stage of this node, and clean up on the last node", Run: r.record})
}

// preflight refuses a stage if some nodes have not completed the previous one. It changes only
// the state that is stored in the cluster.
func (r *Rotation) preflight(ctx context.Context) (err error) {
	if r.IsControlPlane() {
		if err := r.components.pods.TakeTurn(ctx, r.kubeconfig()); err != nil {
			return err
		}
	}
	if r.run.state, err = rotation.Read(ctx, r.run.client.API); err != nil {
		return err
	}
	if r.run.state == nil {
		return r.begin(ctx)
	}
	if err := r.cluster.checkSame(); err != nil {
		return err
	}
	self, err := rotation.ReadNode(ctx, r.run.client.API, r.run.node, r.run.state.ID)
	if err != nil {
		return err
	}
	if err := r.cluster.mayEnter(self.Stage); err != nil {
		return err
	}
	if r.run.done, err = r.cluster.reached(self.Stage); err != nil {
		return err
	}
	if r.run.done {
		r.Console.Note("this node has reached this stage already")
		return nil
	}
	if r.IsControlPlane() {
		if err := r.checkOthers(ctx); err != nil {
			return err
		}
	}
	return r.cluster.enter(ctx)
}

// begin starts a rotation. The new CAs, which the step after this one creates, name it.
func (r *Rotation) begin(ctx context.Context) error {
	if r.run.options.Stage == Cancel {
		prepared, err := r.files.onlyPrepared()
		if err != nil {
			return err
		}
		if prepared {
			r.run.done = true
			return r.forgetPrepared(ctx)
		}
	}
	switch {
	case r.run.options.Stage != Distribute:
		return fault.New(fault.Preflight, "no rotation of the CAs is in progress").Hint("start on a control plane: ./install certs rotate-ca distribute")
	case !r.IsControlPlane():
		return fault.New(fault.Preflight, "no rotation of the CAs is in progress, and this host is a worker").Hint("start on a control plane, and then run it here")
	}
	return r.checkOthers(ctx)
}

// checkOthers refuses to restart this control plane if not all members of etcd are healthy voters,
// or no other API server is ready. A learner is a joining control plane, whose certificates are
// signed by the old CAs.
func (r *Rotation) checkOthers(ctx context.Context) error {
	if err := r.components.pods.Turn.CheckOthers(ctx); err != nil {
		return err
	}
	if r.run.config.Etcd.External != nil {
		return nil
	}
	c, _, err := node.LocalEtcdClient(ctx, r.Machine)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.CheckNoLearner(ctx); err != nil {
		return err
	}
	return c.CheckHealthy(ctx, "")
}

// certs changes the CAs on this control plane, and lets the new CAs sign its certificates.
func (r *Rotation) certs(ctx context.Context) error {
	// The controller manager must not read a ca.crt with two certificates.
	if r.run.options.Stage == Distribute {
		if err := r.components.replaceControllerManager(ctx); err != nil {
			return err
		}
	}
	return r.files.changeControlPlane(ctx)
}

// record records in the cluster that this node has reached the stage. After the last stage of
// the last node, it removes what the rotation needed.
func (r *Rotation) record(ctx context.Context) error {
	if !r.run.done {
		changed, err := rotation.SetStage(ctx, r.run.client, r.run.node, r.run.state.ID, r.run.options.Stage)
		r.Changed(changed)
		if err != nil {
			return err
		}
	}
	if r.run.state != nil && r.IsControlPlane() && (r.run.options.Stage == Finish || r.run.options.Stage == Cancel) {
		if err := r.cleanup(ctx); err != nil {
			return err
		}
	}
	r.summary(ctx)
	return nil
}

// cleanup removes what the rotation needed, when all nodes have reached the last stage.
func (r *Rotation) cleanup(ctx context.Context) error {
	nodes, err := rotation.Nodes(ctx, r.run.client.API, r.run.state.ID)
	if err != nil {
		return err
	}
	if left := behind(nodes, r.run.options.Stage); len(left) > 0 {
		r.Console.Note("these nodes have not reached this stage: %s", strings.Join(left, ", "))
		return r.files.removePairs()
	}
	only := strings.TrimSpace(string(r.run.trusted()))
	published := func(bundle string) bool { return strings.TrimSpace(bundle) == only }
	if err := rotation.WaitForPublishedCA(ctx, r.run.client.API, published, waiting(r.Machine)); err != nil {
		return err
	}
	if err := r.cluster.forgetUnused(ctx); err != nil {
		return err
	}
	if r.run.options.Stage == Finish {
		if err := r.cluster.restartWorkloads(ctx); err != nil {
			return err
		}
	}
	if err := r.files.removePairs(); err != nil {
		return err
	}
	r.run.state = nil
	return rotation.Remove(ctx, r.run.client)
}

// forgetPrepared removes the new CAs, which no node trusts: first from the cluster, then from this host.
func (r *Rotation) forgetPrepared(ctx context.Context) error {
	if err := rotation.Remove(ctx, r.run.client); err != nil {
		return err
	}
	r.Changed(true)
	return r.files.removePairs()
}

// summary prints the next step of the rotation.
func (r *Rotation) summary(ctx context.Context) {
	if r.run.state == nil {
		r.Console.Summary(ends[r.run.options.Stage])
		return
	}
	text := fmt.Sprintf("%s has reached the stage %q.\n", r.run.node, r.run.options.Stage)
	nodes, err := rotation.Nodes(ctx, r.run.client.API, r.run.state.ID)
	if err != nil { // a worker may not list the nodes
		r.Console.Summary(text + "\nTo see what to run next, on a control plane: ./install certs rotate-ca status\n")
		return
	}
	key, err := r.files.storedKey()
	if err != nil || key == "" {
		key = "KEY"
	}
	r.Console.Summary(text + nextStep(r.run.options.Stage, key, nodes))
}

// ends is what is printed after the last stage of the last node.
var ends = map[string]string{
	Finish: `The CAs are rotated: all nodes trust only the new CAs.

Kubeconfigs with certificates of the old CA no longer work: copies of admin.conf, and
kubeconfigs from './install kubeconfig user'. Create them again.
`,
	Cancel: "The rotation is cancelled: all nodes trust only the old CAs.\n",
}

// nextStep describes what to run, and where, in a stage of the rotation. Control planes get the new
// CAs with the key.
func nextStep(stage, key string, nodes []rotation.Node) string {
	left := behind(nodes, stage)
	if stage == Cancel && len(left) == 0 || stage == Finish && len(left) == 0 {
		return "\nTo remove the files and objects of the rotation, run on a control plane:\n\n    ./install certs rotate-ca " + stage + "\n"
	}
	if len(left) > 0 {
		text := "\nRun on these nodes, control planes first:\n\n    " + strings.Join(left, "\n    ") + "\n\n    ./install certs rotate-ca " + stage + "\n"
		if stage == Distribute && slices.ContainsFunc(nodes, func(n rotation.Node) bool { return n.ControlPlane && slices.Contains(left, n.Name) }) {
			text += "\nOn control planes, add the key that the first one printed:\n\n    ./install certs rotate-ca " + stage + " --certificate-key " + key + "\n"
		}
		return text
	}
	return "\nAll nodes have reached it. Run on every node, control planes first:\n\n    ./install certs rotate-ca " + order[rank(stage)+1] + "\n"
}

// trusted returns the CA bundle that a node trusts after this stage.
func (r *run) trusted() []byte {
	former, next := r.state.Former, r.state.Next
	switch r.options.Stage {
	case Distribute:
		return slices.Concat(former, next)
	case Issue:
		return slices.Concat(next, former)
	case Finish:
		return next
	}
	return former
}

// signer is the directory below the certificates directory with the CA certificate and key for the
// controller manager, which cannot sign with a file of two certificates.
func (r *run) signer() string {
	switch r.options.Stage {
	case Distribute:
		return pki.FormerCAs
	case Issue:
		return pki.NextCAs
	}
	return ""
}
