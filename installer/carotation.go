package installer

import (
	"context"
	"fmt"
	"path"
	"slices"
	"strings"
	"time"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/pki"
)

// Stages of a rotation of the cluster's CAs, which every node goes through in this order. No
// node may begin a stage before all have reached the one before. Until RotationIssue has begun,
// RotationCancel goes back.
const (
	RotationDistribute = "distribute" // trust the old and the new CAs
	RotationIssue      = "issue"      // the new CAs sign all certificates
	RotationFinish     = "finish"     // trust only the new CAs
	RotationCancel     = "cancel"     // trust only the old CAs again
)

var rotationOrder = []string{RotationDistribute, RotationIssue, RotationFinish}

// rotationTimeout limits the waits for pods and for the controller manager, without progress.
const rotationTimeout = 5 * time.Minute

// RotationOptions are the user's options of a stage.
type RotationOptions struct {
	Stage string
	// Kubeconfig reaches the cluster; "" is admin.conf on a control plane, else kubelet.conf.
	Kubeconfig string
	// CertificatesDir is the directory of the certificates; "" is that of the cluster's configuration.
	CertificatesDir string
	// CertificateKey decrypts the new CAs on each control plane but the first, which creates it.
	CertificateKey string
	// RestartWorkloads also restarts the workloads of all namespaces, and not only the add-ons.
	RestartWorkloads bool
}

// A CARotation takes this node through one stage of the rotation of the CAs.
type CARotation struct {
	*machine
	options RotationOptions
	client  *cluster.Client
	config  *config.Config // the cluster's
	node    string
	pods    *StaticPods         // without static pods on a worker
	state   *cluster.CARotation // nil until it is known
	done    bool                // this node has reached the stage already
}

// NewCARotation connects to the cluster, and returns the CARotation of this node.
func NewCARotation(ctx context.Context, o RotationOptions, h *host.Host, console *Console) (*CARotation, error) {
	r := &CARotation{machine: newMachine(h, console), options: o}
	if err := r.checkNode(); err != nil {
		return nil, err
	}
	var err error
	if r.client, err = loadClient(h, r.Kubeconfig(), "", 0); err != nil {
		return nil, err
	}
	// An interrupted run may have just restarted the API server: it refuses requests until it has
	// read the permissions.
	if err := r.client.WaitForAPI(ctx, rotationTimeout, r.report); err != nil {
		return nil, err
	}
	fetched, err := r.client.FetchConfig(ctx)
	if err != nil {
		return nil, err
	}
	r.config = &config.Config{Cluster: fetched.Cluster}
	if o.CertificatesDir != "" {
		r.config.Cluster.CertificatesDir = o.CertificatesDir
	}
	r.pods, err = NewStaticPods(r.config, h, console)
	return r, err
}

// checkNode refuses a host whose CAs cannot be rotated now.
func (r *CARotation) checkNode() error {
	if err := UnfinishedRestore(r.existing); err != nil {
		return err
	}
	r.node = pki.NodeName(r.files())
	switch {
	case r.node == "":
		return fault.New(fault.Preflight, "run it on a node of the cluster", "this host is not a node of a cluster: %s does not have a node's name", kubeletConf)
	case r.isControlPlane() && !r.existing.Used():
		return fault.New(fault.Preflight, "rotate the CAs as Kubernetes' documentation describes", "Airlift did not install this control plane: it has no ledger, in which changes are recorded")
	}
	upgrade, err := readUpgradeState(r.existing)
	if err == nil && upgrade != nil && !upgrade.Finished {
		err = fault.New(fault.Preflight, "finish the upgrade first, or undo it: ./install upgrade undo", "an upgrade of this node to %s was not finished", upgrade.To)
	}
	return err
}

// Kubeconfig is the file with which this node reaches the cluster.
func (r *CARotation) Kubeconfig() string {
	switch {
	case r.options.Kubeconfig != "":
		return r.options.Kubeconfig
	case r.isControlPlane():
		return adminConf
	}
	return kubeletConf
}

// Close gives up the turn of this control plane, and closes the connection to the container runtime.
func (r *CARotation) Close() { r.pods.Close() }

// Run runs the stage. It is safe to run it again: after an interruption it finishes the stage.
func (r *CARotation) Run(ctx context.Context) error {
	return Run(ctx, r.console, r.Steps(), nil)
}

// Steps returns the steps of the stage on this node.
func (r *CARotation) Steps() []Step {
	steps := []Step{{Name: "preflight", Doc: "check this node and the state of the rotation", Run: r.preflight}}
	add := func(name, doc string, run func(context.Context) error) {
		steps = append(steps, Step{Name: name, Doc: doc, Run: func(ctx context.Context) error {
			if r.done {
				return nil
			}
			if err := r.pods.turn.confirm(ctx); err != nil {
				return err
			}
			return run(ctx)
		}})
	}
	trust := map[string]string{
		RotationDistribute: "trust the old and the new CAs", RotationIssue: "sign all certificates with the new CAs",
		RotationFinish: "trust only the new CAs", RotationCancel: "trust only the old CAs again",
	}[r.options.Stage]
	if r.isControlPlane() {
		switch r.options.Stage {
		case RotationDistribute:
			add("next-cas", "create the new CAs, or get them from the cluster", r.nextCAs)
		case RotationIssue:
			add("workloads", "restart the pods that do not trust the new CA yet", r.restartWorkloads)
		}
		add("certs", trust, r.certs)
		add("control-plane", "restart the static pods, one by one", r.controlPlane)
		add("kubelet", "restart the kubelet", r.restartKubelet)
		add("cluster-info", "publish the CAs to joining nodes", r.clusterInfo)
	} else {
		add("certs", trust, r.workerCerts)
		add("kubelet", "restart the kubelet", r.restartKubelet)
	}
	return append(steps, Step{Name: "record", Doc: "record the stage of this node, and clean up on the last node", Run: r.record})
}

// preflight refuses a stage if some nodes have not completed the previous one. It changes only
// the state that is stored in the cluster.
func (r *CARotation) preflight(ctx context.Context) (err error) {
	if r.isControlPlane() {
		if err := r.pods.TakeTurn(ctx, r.Kubeconfig()); err != nil {
			return err
		}
	}
	if r.state, err = r.client.Rotation(ctx); err != nil {
		return err
	}
	if r.state == nil {
		return r.begin(ctx)
	}
	if err := r.sameRotation(); err != nil {
		return err
	}
	self, err := r.client.RotationNode(ctx, r.node, r.state.ID)
	if err != nil {
		return err
	}
	if err := r.mayEnter(self.Stage); err != nil {
		return err
	}
	if r.done, err = r.reached(self.Stage); err != nil {
		return err
	}
	if r.done {
		r.console.Note("this node has reached this stage already")
		return nil
	}
	if r.isControlPlane() {
		if err := r.checkOthers(ctx); err != nil {
			return err
		}
	}
	return r.enter(ctx)
}

// begin starts a rotation. The new CAs, which the step after this one creates, name it.
func (r *CARotation) begin(ctx context.Context) error {
	if r.options.Stage == RotationCancel {
		prepared, err := r.onlyPrepared()
		if err != nil {
			return err
		}
		if prepared {
			r.done = true
			return r.forgetPrepared(ctx)
		}
	}
	switch {
	case r.options.Stage != RotationDistribute:
		return fault.New(fault.Preflight, "start on a control plane: ./install certs rotate-ca distribute", "no rotation of the CAs is in progress")
	case !r.isControlPlane():
		return fault.New(fault.Preflight, "start on a control plane, and then run it here", "no rotation of the CAs is in progress, and this host is a worker")
	}
	return r.checkOthers(ctx)
}

// sameRotation refuses to continue with the CAs of another rotation.
func (r *CARotation) sameRotation() error {
	_, next, err := pki.RotationCAs(r.config, r.files(), "ca")
	if err != nil || next == nil {
		return err
	}
	id, err := rotationID(next)
	if err == nil && id != r.state.ID {
		err = fault.New(fault.Preflight, "if it belongs to an earlier rotation and was restored from a backup, move that directory away",
			"%s has the CAs of another rotation (%s) than the cluster (%s)", path.Join(r.config.CertificatesDir, pki.RotationDir), id, r.state.ID)
	}
	return err
}

// rotationID names a rotation by the hash of the new CA.
func rotationID(next []byte) (string, error) {
	hashes, err := pki.CAHashes(next)
	if err != nil {
		return "", err
	}
	return hashes[0], nil
}

func rotationRank(stage string) int { return slices.Index(rotationOrder, stage) }

// reached reports whether this node, which is in a stage, has reached the one of this run. A
// control plane that has not begun has nothing to cancel.
func (r *CARotation) reached(stage string) (bool, error) {
	if r.options.Stage != RotationCancel {
		return rotationRank(stage) >= rotationRank(r.options.Stage), nil
	}
	_, next, err := pki.RotationCAs(r.config, r.files(), "ca")
	return stage == RotationCancel || r.isControlPlane() && next == nil, err
}

// mayEnter refuses a stage that cannot follow the one of this node or of the cluster.
func (r *CARotation) mayEnter(self string) error {
	want, now := r.options.Stage, r.state.Stage
	switch {
	case now == RotationCancel && want != RotationCancel:
		return fault.New(fault.Preflight, "run on every node: ./install certs rotate-ca cancel", "the rotation is being cancelled")
	case want == RotationCancel && now != RotationDistribute && now != RotationCancel:
		return fault.New(fault.Preflight, "continue: ./install certs rotate-ca issue, and then finish, on every node",
			"the rotation cannot be cancelled any more: the stage %q has begun, and the new CAs sign certificates", now)
	case want != RotationCancel && rotationRank(self) < rotationRank(want)-1:
		before := rotationOrder[rotationRank(want)-1]
		return fault.New(fault.Preflight, "run here first: ./install certs rotate-ca "+before, "this node has not reached the stage %q", before)
	case !r.isControlPlane() && (want == RotationCancel && now != want || rotationRank(now) < rotationRank(want)):
		return fault.New(fault.Preflight, "run on a control plane first: ./install certs rotate-ca "+want, "the stage %q has not begun", want)
	}
	return nil
}

// enter begins the stage in the cluster, if it has not begun: no node may be behind.
func (r *CARotation) enter(ctx context.Context) error {
	want := r.options.Stage
	if want == r.state.Stage || want != RotationCancel && rotationRank(r.state.Stage) > rotationRank(want) {
		return nil
	}
	if want != RotationCancel {
		if err := r.noneBehind(ctx, rotationOrder[rotationRank(want)-1]); err != nil {
			return err
		}
	}
	if want == RotationIssue {
		next := strings.TrimSpace(string(r.state.Next))
		published := func(bundle string) bool { return strings.Contains(bundle, next) }
		if err := r.client.WaitForPublishedCA(ctx, published, r.waiting()); err != nil {
			return err
		}
	}
	r.state.Stage = want
	return r.applied(r.client.StoreRotation(ctx, r.state))
}

func (r *CARotation) waiting() cluster.Waiting {
	return cluster.Waiting{Timeout: rotationTimeout, Report: r.report}
}

// noneBehind refuses to continue while nodes have not reached a stage, and names them.
func (r *CARotation) noneBehind(ctx context.Context, stage string) error {
	nodes, err := r.client.RotationNodes(ctx, r.state.ID)
	if err != nil {
		return err
	}
	if left := behind(nodes, stage); len(left) > 0 {
		return fault.New(fault.Preflight, "run on each of them: ./install certs rotate-ca "+stage+"; remove a node that is gone: kubectl delete node NAME",
			"these nodes have not reached the stage %q: %s", stage, strings.Join(left, ", "))
	}
	return nil
}

// behind returns the names of the nodes that have not reached a stage.
func behind(nodes []cluster.RotationNode, stage string) (names []string) {
	for _, n := range nodes {
		is := n.Stage == stage || stage != RotationCancel && rotationRank(n.Stage) >= rotationRank(stage)
		if stage == RotationCancel && n.Stage == "" {
			is = true
		}
		if !is {
			names = append(names, n.Name)
		}
	}
	return names
}

// checkOthers refuses to restart this control plane if not all members of etcd are healthy voters, or no
// other API server is ready. A learner is a control plane that joins: its certificates are signed by
// the old CAs.
func (r *CARotation) checkOthers(ctx context.Context) error {
	if err := r.pods.turn.CheckOthers(ctx); err != nil {
		return err
	}
	if r.config.Etcd.External != nil {
		return nil
	}
	c, _, err := localEtcdClient(ctx, r.machine)
	if err != nil {
		return err
	}
	defer c.Close()
	if err := c.CheckNoLearner(ctx); err != nil {
		return err
	}
	return c.CheckHealthy(ctx, "")
}

// record records in the cluster that this node has reached the stage. After the last stage of
// the last node, it removes what the rotation needed.
func (r *CARotation) record(ctx context.Context) error {
	if !r.done {
		changed, err := r.client.SetRotationStage(ctx, r.node, r.state.ID, r.options.Stage)
		r.changed(changed)
		if err != nil {
			return err
		}
	}
	if r.state != nil && r.isControlPlane() && (r.options.Stage == RotationFinish || r.options.Stage == RotationCancel) {
		if err := r.cleanup(ctx); err != nil {
			return err
		}
	}
	r.summary(ctx)
	return nil
}

// summary prints the next step of the rotation.
func (r *CARotation) summary(ctx context.Context) {
	if r.state == nil {
		r.console.Summary(rotationEnds[r.options.Stage])
		return
	}
	text := fmt.Sprintf("%s has reached the stage %q.\n", r.node, r.options.Stage)
	nodes, err := r.client.RotationNodes(ctx, r.state.ID)
	if err != nil { // a worker may not list the nodes
		r.console.Summary(text + "\nTo see what to run next, on a control plane: ./install certs rotate-ca status\n")
		return
	}
	key, err := r.storedKey()
	if err != nil || key == "" {
		key = "KEY"
	}
	r.console.Summary(text + NextRotationStep(r.options.Stage, key, nodes))
}

// rotationEnds is what is printed after the last stage of the last node.
var rotationEnds = map[string]string{
	RotationFinish: `The CAs are rotated: all nodes trust only the new CAs.

Kubeconfigs with certificates of the old CA no longer work: copies of admin.conf, and
those of './install kubeconfig user'. Create them again.
`,
	RotationCancel: "The rotation is cancelled: all nodes trust only the old CAs.\n",
}

// NextRotationStep describes what to run, and where, in a stage of the rotation. Control planes get the new
// CAs with the key.
func NextRotationStep(stage, key string, nodes []cluster.RotationNode) string {
	left := behind(nodes, stage)
	if stage == RotationCancel && len(left) == 0 || stage == RotationFinish && len(left) == 0 {
		return "\nTo remove the files and objects of the rotation, run on a control plane:\n\n    ./install certs rotate-ca " + stage + "\n"
	}
	if len(left) > 0 {
		text := "\nRun on these nodes, control planes first:\n\n    " + strings.Join(left, "\n    ") + "\n\n    ./install certs rotate-ca " + stage + "\n"
		if stage == RotationDistribute && slices.ContainsFunc(nodes, func(n cluster.RotationNode) bool { return n.ControlPlane && slices.Contains(left, n.Name) }) {
			text += "\nOn control planes, add the key that the first one printed:\n\n    ./install certs rotate-ca " + stage + " --certificate-key " + key + "\n"
		}
		return text
	}
	return "\nAll nodes have reached it. Run on every node, control planes first:\n\n    ./install certs rotate-ca " + rotationOrder[rotationRank(stage)+1] + "\n"
}
