// Package site adds what a site has of its own to a running cluster: it imports images into the containerd of
// a node, lists and prunes them, and applies manifests.
package site

import (
	"context"
	"fmt"
	"slices"
	"strings"

	"airlift/installer/cluster/apply"
	"airlift/installer/config"
	"airlift/installer/desired"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/installer/payload"
	"airlift/installer/phases"
	"airlift/installer/workflow"
	"airlift/internal/fault"
)

// ApplyOptions are the user's options for apply.
type ApplyOptions struct {
	phases.InitOptions
	// IgnoreVersion also applies manifests that were built for another minor version of
	// Kubernetes.
	IgnoreVersion bool
	SkipPhases    []string
	// Prune also removes objects that only earlier versions of the manifests have.
	Prune bool
	// Undo applies the version of manifests before the last apply, from the history. Remove removes manifests with all their objects.
	Undo, Remove bool
	// Names are the manifests for Undo and Remove.
	Names []string
	// Also are objects that are only removed when they are named.
	Also []string
	// Confirm asks the user a question; nil answers yes.
	Confirm func(question string) error
}

// An Apply applies the site's own manifests of a bundle to a running cluster, applies earlier versions of them again, or removes them.
type Apply struct {
	*node.Machine
	node      *phases.Node
	api       *phases.API
	manifests *phases.Manifests
	options   ApplyOptions

	plan    apply.Plan // what is removed
	undos   []apply.Undo
	removed map[string]apply.Wanted // manifests that are removed
	kept    apply.Plan              // what turned out to stay during the removal
}

// NewApply returns an Apply of the bundle's manifests.
func NewApply(b *payload.Bundle, o ApplyOptions, h *host.Host, c *workflow.Console) *Apply {
	return newApply(&phases.Plan{Config: &config.Config{SkipPhases: o.SkipPhases}, Bundle: b, OnePhase: true}, o, node.NewMachine(h, c))
}

func newApply(p *phases.Plan, o ApplyOptions, m *node.Machine) *Apply {
	a := phases.NewAPI(phases.NewContent(phases.NewNode(p, m)))
	run := &Apply{Machine: m, node: a.Node, api: a, manifests: phases.NewManifests(a, o.InitOptions), options: o, removed: map[string]apply.Wanted{}}
	run.manifests.Removes, run.manifests.FromHistory = o.Prune || o.Undo, o.Undo
	return run
}

// ApplyPhases returns the steps of apply, for the names of its phases.
func ApplyPhases() []workflow.Step {
	return newApply(&phases.Plan{Config: new(config.Config)}, ApplyOptions{Prune: true}, nil).steps()
}

// RemovalPhases are the names of the phases of apply remove that can be skipped.
var RemovalPhases = []string{"pre-delete", "post-delete"}

// steps returns the steps of apply in order.
func (a *Apply) steps() []workflow.Step {
	none := len(a.node.Plan.SiteManifests()) == 0
	switch {
	case a.options.Remove:
		return []workflow.Step{
			{Name: "preflight", Doc: "find what is removed", Run: a.planRemoval, Needed: true},
			{Name: RemovalPhases[0], Doc: "run the hooks before the removal", Run: a.manifests.Alone(a.hooks(false))},
			{Name: "remove", Doc: "remove the objects", Run: a.manifests.Alone(a.remove), Needed: true},
			{Name: RemovalPhases[1], Doc: "run the hooks after the removal", Run: a.manifests.Alone(a.hooks(true))},
			{Name: "forget", Doc: "remove the history", Run: a.manifests.Alone(a.forget), Needed: true},
		}
	case a.options.Undo:
		return []workflow.Step{
			{Name: "preflight", Doc: "find the version before, and check this node", Run: a.planUndo, Needed: true},
			{Name: "manifests", Doc: "apply the version before", Run: a.manifests.Alone(a.applyAgain), Needed: true},
			{Name: "wait-manifests", Doc: "wait for the workloads of the manifests", Run: a.manifests.Alone(func(ctx context.Context) error { return a.manifests.WaitThese(ctx, a.again()) })},
			{Name: "prune", Doc: "remove what only the version after had", Run: a.manifests.Alone(a.endUndo), Needed: true},
		}
	}
	return []workflow.Step{
		{Name: "preflight", Doc: "check this file, this node and the cluster", Run: a.preflight, Needed: true},
		{Name: "manifests", Doc: "apply the site's own manifests", Desired: a.manifests.Desired, Apply: func(ctx context.Context, l desired.List) error {
			return a.manifests.Alone(func(ctx context.Context) error { return a.manifests.Apply(ctx, l) })(ctx)
		}, Empty: none},
		{Name: "wait-manifests", Doc: "wait for the workloads of the site's manifests", Run: a.manifests.Alone(a.manifests.Wait), Empty: none},
		{Name: "prune", Doc: "remove objects that only earlier versions have", Run: a.manifests.Alone(a.prune), Empty: none || !a.options.Prune},
	}
}

// Run applies the manifests, or prints them.
func (a *Apply) Run(ctx context.Context) error {
	if a.options.ManifestsOnly() {
		if err := a.node.Plan.Bundle.Checked(ctx, a.Console); err != nil {
			return err
		}
		l, err := a.manifests.Desired(ctx)
		if err != nil {
			return err
		}
		return a.manifests.Print(l)
	}
	if err := workflow.Run(ctx, a.Console, a.steps(), a.options.SkipPhases); err != nil {
		return err
	}
	return a.checkRead()
}

// checkRead returns an error if objects stay that could not be read.
func (a *Apply) checkRead() error {
	var names []string
	for _, r := range slices.Concat(a.plan, a.kept) {
		if line := r.Manifest + ": " + r.Object + ": " + r.Kept; r.Unread() && !slices.Contains(names, line) {
			names = append(names, line)
		}
	}
	if len(names) == 0 {
		return nil
	}
	return fault.New(fault.Failure, "everything else is done, but these objects could not be read, and stay:\n  - %s", strings.Join(names, "\n  - ")).
		Hint("repair what serves them, such as the pods of a conversion webhook or of an APIService; then run the same command again")
}

// Close releases the Lease, and closes the connection to containerd.
func (a *Apply) Close() {
	a.manifests.Close()
	a.node.Close()
}

// connect finds the container runtime of this host, and connects to the cluster.
func (a *Apply) connect(ctx context.Context) error {
	socket, err := node.RuntimeSocket(a.Host)
	if err != nil {
		return err
	}
	learned := *a.node.Config
	learned.NodeRegistration.CRISocket = socket
	a.node.Config = &learned
	a.api.Client, err = node.AdminClient(ctx, a.Host, a.options.Kubeconfig)
	return err
}

// open checks this file, and connects to the cluster.
func (a *Apply) open(ctx context.Context) error {
	b := a.node.Plan.Bundle
	if err := b.AttachNode(ctx, a.Existing, a.Console); err != nil {
		return err
	}
	if err := a.connect(ctx); err != nil {
		return err
	}
	version, err := a.api.Client.Version(ctx)
	if err != nil {
		return err
	}
	if want := b.Manifest.KubernetesVersion; !node.SameMinor(version, want) {
		if !a.options.IgnoreVersion {
			return fault.New(fault.Preflight, "the API server has Kubernetes %s, and the manifests of this file were rendered for %s", version, want).
				Hint("build it again for this cluster: 'bundle build --version " + version + "'; or, if the manifests work with both versions: " + b.Command("apply --ignore-version"))
		}
		a.Console.Warn("the API server has Kubernetes %s, and the manifests of this file were rendered for %s", version, want)
	}
	return nil
}

// preflight connects to the cluster, and refuses manifests that would not run there. It
// changes nothing.
func (a *Apply) preflight(ctx context.Context) error {
	b := a.node.Plan.Bundle
	if err := b.Checked(ctx, a.Console); err != nil {
		return err
	}
	if len(a.node.Plan.SiteManifests()) == 0 {
		a.Console.Summary("Nothing to do: this file has no manifests.\n")
		return nil
	}
	if err := a.open(ctx); err != nil {
		return err
	}
	a.Console.Summary("To see the state of the manifests: " + b.Command("status") + "\n")
	if err := a.checkImages(ctx); err != nil {
		return err
	}
	manifests, err := a.manifests.Parsed(ctx)
	if err != nil {
		return err
	}
	if err := a.checkServed(manifests, b.Manifest.KubernetesVersion); err != nil || !a.options.Prune {
		return err
	}
	if a.plan, err = a.planPrune(ctx, manifests); err != nil {
		return err
	}
	return a.ask("are no longer in the manifests, and are removed when the manifests run", "Apply the manifests, and remove these objects?", false)
}

// planPrune returns what a prune after these manifests removes.
func (a *Apply) planPrune(ctx context.Context, manifests []*apply.Manifest) (apply.Plan, error) {
	wanted, err := a.manifests.Applier().FormerOf(ctx, manifests)
	if err != nil {
		return nil, err
	}
	return a.manifests.Applier().PlanRemoval(ctx, wanted, a.options.Also)
}

// ask prints what is removed and what stays, and asks the user. Without objects to remove, it only asks if always is set.
func (a *Apply) ask(what, question string, always bool) error {
	removed, kept := a.plan.Removed(), a.plan.Kept()
	for _, text := range PlanLines(a.plan, what) {
		a.Console.Note("%s", text)
	}
	if len(removed)+len(kept) == 0 && !always {
		a.Console.Note("there is nothing to remove")
	}
	if len(removed) == 0 && !always || a.options.Confirm == nil {
		return nil
	}
	return a.options.Confirm(question)
}

// PlanLines describes a plan. what describes the objects that are removed.
func PlanLines(plan apply.Plan, what string) (lines []string) {
	if removed := plan.Removed(); len(removed) > 0 {
		lines = append(lines, "these objects "+what+":")
		for _, r := range removed {
			lines = append(lines, "  - "+r.Manifest+": "+r.Object)
		}
	}
	if kept := plan.Kept(); len(kept) > 0 {
		lines = append(lines, "these objects stay:")
		for _, r := range kept {
			text := "  - " + r.Manifest + ": " + r.Object + ": " + r.Kept
			if r.Also() {
				text += "; to remove it, too: --also '" + r.Object + "'"
			}
			lines = append(lines, text)
		}
	}
	return lines
}

// prune removes what the user confirmed.
func (a *Apply) prune(ctx context.Context) error {
	for _, name := range []string{"manifests", "wait-manifests"} {
		if slices.Contains(a.options.SkipPhases, name) {
			a.Console.Note("skipped, because the phase %s is skipped", name)
			return nil
		}
	}
	if a.manifests.Waits {
		a.Console.Warn("nothing is removed, because objects of the manifests wait for a worker; after one has joined: %s", a.node.Plan.Bundle.Command("apply --prune"))
		return nil
	}
	return a.removeAll(ctx, a.plan)
}

// removeAll removes what a plan lists.
func (a *Apply) removeAll(ctx context.Context, plan apply.Plan) error {
	kept, err := a.manifests.Applier().Remove(ctx, plan, a.options.Also)
	a.kept = append(a.kept, kept...)
	n := len(plan.Removed()) - len(kept)
	for _, r := range kept {
		a.Console.Warn("%s of manifest %s stays: %s", r.Object, r.Manifest, r.Kept)
	}
	if err != nil {
		return err
	}
	a.Changes += n
	a.Console.Note("%s removed", workflow.Count(n, "object"))
	if n > 0 {
		a.Console.Summary("To remove the images that nothing needs any more, on each node: " + a.node.Plan.Bundle.Command("images prune") + "\n")
	}
	return nil
}

// planUndo finds out what an undo does, checks the images, and asks.
func (a *Apply) planUndo(ctx context.Context) error {
	if err := a.connect(ctx); err != nil {
		return err
	}
	if err := a.findUndos(ctx); err != nil {
		return err
	}
	for _, line := range UndoLines(a.undos) {
		a.Console.Note("%s", line)
	}
	for _, u := range a.undos {
		if u.To == nil {
			continue
		}
		if err := a.haveImages(ctx, u.Manifest.Images(), fmt.Sprintf("version %d of manifest %q", u.To.Number, u.Name), u.To); err != nil {
			return err
		}
	}
	return a.ask("are only in the undone version, and are removed", "Undo this?", true)
}

// findUndos sets what is undone and removed.
func (a *Apply) findUndos(ctx context.Context) (err error) {
	site := a.manifests.Applier()
	if a.undos, err = site.Undos(ctx, a.options.Names); err != nil {
		return err
	}
	version, err := a.api.Client.Version(ctx)
	if err != nil {
		return err
	}
	for _, u := range a.undos {
		if u.To == nil {
			continue
		}
		if was := u.To.Kubernetes; was != "" && !node.SameMinor(was, version) {
			a.Console.Warn("the API server has Kubernetes %s, and version %d of manifest %s was rendered for %s", version, u.To.Number, u.Name, was)
		}
		if err := a.checkServed([]*apply.Manifest{u.Manifest}, version); err != nil {
			return err
		}
	}
	var wanted []apply.Wanted
	for _, u := range a.undos {
		w := site.WantedOf(u)
		if wanted = append(wanted, w); u.To == nil {
			a.removed[u.Name] = w
		}
	}
	a.plan, err = site.PlanRemoval(ctx, wanted, a.options.Also)
	return err
}

// checkServed refuses manifests with objects of APIs that this Kubernetes does not serve: a part of them would be applied.
func (a *Apply) checkServed(manifests []*apply.Manifest, version string) error {
	if not := a.manifests.Applier().Unserved(manifests); len(not) > 0 {
		return fault.New(fault.Preflight, "the API server does not serve the versions of these objects:\n  - %s", strings.Join(not, "\n  - ")).
			Hint("change them to versions that it serves ('kubectl api-resources' lists them), and build the file again: 'bundle build --version " + version + "'")
	}
	return nil
}

// UndoLines describes what an undo does.
func UndoLines(undos []apply.Undo) (lines []string) {
	for _, u := range undos {
		switch {
		case u.To == nil:
			lines = append(lines, u.Name+": it is removed, with its history, because the last apply brought it")
		case u.Continues:
			lines = append(lines, fmt.Sprintf("%s: an undo was interrupted, and is continued: version %d%s", u.Name, u.To.Number, origin(*u.To)))
		default:
			lines = append(lines, fmt.Sprintf("%s: version %d is applied again%s", u.Name, u.To.Number, origin(*u.To)))
			if !u.To.Complete {
				lines = append(lines, u.Name+": it is not known whether this version ran: apply did not wait for it, or failed")
			}
		}
	}
	return lines
}

// origin describes where a version is from.
func origin(r apply.Revision) string {
	text := ", first applied at " + r.Began
	if r.Chart != "" {
		text = " (" + r.Chart + ")" + text
	}
	if r.File != "" {
		text += " from the file " + r.File
	}
	return text
}

// again returns the manifests that an undo applies.
func (a *Apply) again() (list []*apply.Manifest) {
	for _, u := range a.undos {
		if u.To != nil {
			list = append(list, u.Manifest)
		}
	}
	return list
}

// applyAgain applies these versions, if nothing else was applied while the user was asked.
func (a *Apply) applyAgain(ctx context.Context) error {
	for _, u := range a.undos {
		now, err := a.manifests.Applier().Known(ctx, u.Name)
		if err != nil {
			return err
		}
		if now.Revision != u.Now.Revision || now.Run != u.Now.Run || now.Undoes != u.Now.Undoes || now.Removing != u.Now.Removing {
			return fault.New(fault.Failure, "another command changed manifest %q since this undo was planned", u.Name).Hint("run this command again: it makes a new plan")
		}
	}
	return a.manifests.ApplyThese(ctx, a.again())
}

// endUndo removes what only the undone version had, and manifests that it brought.
func (a *Apply) endUndo(ctx context.Context) error {
	if a.manifests.Waits {
		a.Console.Warn("nothing is removed, because objects of the manifests wait for a worker; after one has joined, to complete this: %s", a.node.Plan.Bundle.Command("apply undo"))
		return nil
	}
	var changed, gone apply.Plan
	for _, r := range a.plan {
		if _, whole := a.removed[r.Manifest]; whole {
			gone = append(gone, r)
		} else {
			changed = append(changed, r)
		}
	}
	if err := a.removeAll(ctx, changed); err != nil {
		return err
	}
	if len(a.removed) > 0 {
		a.plan = gone
		for _, step := range []func(context.Context) error{a.hooks(false), a.remove, a.hooks(true), a.forget} {
			if err := step(ctx); err != nil {
				return err
			}
		}
	}
	var names []string
	for _, u := range a.undos {
		names = append(names, u.Name)
	}
	return a.manifests.Applier().EndUndo(ctx, names)
}

// planRemoval finds out what is removed with manifests, and asks.
func (a *Apply) planRemoval(ctx context.Context) error {
	if err := a.connect(ctx); err != nil {
		return err
	}
	if err := a.findRemovals(ctx); err != nil {
		return err
	}
	for _, name := range a.options.Names {
		e, err := a.manifests.Applier().Known(ctx, name)
		if err != nil {
			return err
		}
		images, err := a.manifests.Applier().RemovalImages(ctx, name, e)
		if err != nil {
			return err
		}
		if !slices.Contains(a.options.SkipPhases, RemovalPhases[0]) || !slices.Contains(a.options.SkipPhases, RemovalPhases[1]) {
			if err := a.haveImages(ctx, images, fmt.Sprintf("the hooks of manifest %q", name), nil); err != nil {
				return err
			}
		}
	}
	return a.ask("are removed", fmt.Sprintf("Remove %s from the cluster, with its history? An undo does not bring it back.", strings.Join(a.options.Names, " and ")), true)
}

// findRemovals sets what is removed.
func (a *Apply) findRemovals(ctx context.Context) (err error) {
	site := a.manifests.Applier()
	var wanted []apply.Wanted
	for _, name := range a.options.Names {
		e, err := site.Known(ctx, name)
		if err != nil {
			return err
		}
		a.removed[name] = site.Everything(name, e)
		wanted = append(wanted, a.removed[name])
	}
	a.plan, err = site.PlanRemoval(ctx, wanted, a.options.Also)
	return err
}

// removals returns the names of the manifests that are removed, sorted.
func (a *Apply) removals() (names []string) {
	for name := range a.removed {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}

// hooks runs the hooks of the manifests that are removed.
func (a *Apply) hooks(afterwards bool) func(context.Context) error {
	return func(ctx context.Context) error {
		site := a.manifests.Applier()
		for _, name := range a.removals() {
			if err := site.BeginRemoval(ctx, a.removed[name]); err != nil {
				return err
			}
			later, err := site.RemovalHooks(ctx, name, afterwards)
			if err != nil {
				return err
			}
			if later != "" {
				return fault.New(fault.Failure, "the hooks of manifest %q: %s", name, later).Hint("after a worker has joined, run this command again; or without its hooks: --skip-phases " + strings.Join(RemovalPhases, ","))
			}
		}
		return nil
	}
}

// remove removes the objects of manifests, except for namespaces: hooks may follow.
func (a *Apply) remove(ctx context.Context) error {
	for _, name := range a.removals() {
		if err := a.manifests.Applier().BeginRemoval(ctx, a.removed[name]); err != nil {
			return err
		}
	}
	_, others := a.plan.Namespaces()
	return a.removeAll(ctx, others)
}

// forget removes what hooks left, the namespaces, and the history.
func (a *Apply) forget(ctx context.Context) error {
	site := a.manifests.Applier()
	var left []apply.Wanted
	for _, name := range a.removals() {
		e, err := site.Known(ctx, name)
		if fault.ExitCode(err) == fault.Usage {
			continue // it was forgotten before
		}
		if err != nil {
			return err
		}
		w, err := site.HookObjects(ctx, name, e)
		if err != nil {
			return err
		}
		left = append(left, w)
	}
	plan, err := site.PlanRemoval(ctx, left, nil)
	if err != nil {
		return err
	}
	namespaces, _ := a.plan.Namespaces()
	for _, p := range []apply.Plan{plan, namespaces} {
		kept, err := site.Remove(ctx, p, a.options.Also)
		a.kept = append(append(a.kept, kept...), p...)
		for _, r := range kept {
			a.Console.Warn("%s of manifest %s stays: %s", r.Object, r.Manifest, r.Kept)
		}
		if err != nil {
			return err
		}
	}
	for _, name := range a.removals() {
		stays, err := site.EndRemoval(ctx, name)
		if err != nil {
			return err
		}
		if len(stays) == 0 {
			a.Console.Note("%s: removed from the inventory, with its history", name)
			continue
		}
		a.Console.Note("%s: its history is removed; %s in the inventory until removed by name: %s", name, workflow.Count(len(stays), "object"), strings.Join(stays, ", "))
	}
	return nil
}

// haveImages refuses if this node does not have images. of names what needs them. On a node that uses the embedded registry, it only
// warns.
func (a *Apply) haveImages(ctx context.Context, images []string, of string, r *apply.Revision) error {
	if len(images) == 0 {
		return nil
	}
	if !a.Exists(node.KubeletConf) {
		a.Console.Warn("this host is not a node, so the check for imported images is skipped")
		return nil
	}
	if a.node.Watch.Containerd == nil {
		var err error
		if a.node.Watch.Containerd, err = a.NodeRuntime(ctx); err != nil {
			return err
		}
	}
	list, err := a.node.Watch.Containerd.Images(ctx)
	if err != nil {
		return err
	}
	here := map[string]bool{}
	for _, i := range list {
		for _, name := range i.Names {
			here[name] = true
		}
	}
	missing := slices.DeleteFunc(slices.Clone(images), func(name string) bool {
		full, ok := fullName(name)
		return !ok || here[full]
	})
	switch {
	case len(missing) == 0:
		return nil
	case phases.UsesRegistry(a.Machine):
		a.Console.Warn("images of %s are not on this node, and must come from the embedded registry: %s", of, strings.Join(missing, ", "))
		return nil
	}
	hint := "on every node, import a file that has them; then run this command again"
	if r != nil && r.File != "" {
		hint = fmt.Sprintf("on every node, import the file that has them: its name was %s, and its manifest.json has the sha256 %s; then run this command again", r.File, r.Bundle)
	}
	return fault.New(fault.Preflight, "these images of %s are not on this node:\n  - %s", of, strings.Join(missing, "\n  - ")).Hint(hint)
}

// A Comparison is what an apply would do.
type Comparison struct {
	Differences []apply.Difference
	Undos       []apply.Undo
	Plan        apply.Plan // what would be removed
}

// Work reports whether the apply would do anything.
func (c *Comparison) Work() bool {
	return len(c.Plan.Removed())+len(c.Undos) > 0 || slices.ContainsFunc(c.Differences, apply.Difference.Any)
}

// Compare finds out what an apply with these options would do. It changes nothing.
func (a *Apply) Compare(ctx context.Context) (*Comparison, error) {
	c := &Comparison{}
	if a.options.Remove {
		if err := a.connect(ctx); err != nil {
			return nil, err
		}
		err := a.findRemovals(ctx)
		c.Plan = a.plan
		return c, err
	}
	var manifests []*apply.Manifest
	if a.options.Undo {
		if err := a.connect(ctx); err != nil {
			return nil, err
		}
		if err := a.findUndos(ctx); err != nil {
			return nil, err
		}
		c.Plan, c.Undos, manifests = a.plan, a.undos, a.again()
	} else {
		b := a.node.Plan.Bundle
		if err := b.Checked(ctx, a.Console); err != nil || len(a.node.Plan.SiteManifests()) == 0 {
			return c, err
		}
		err := a.open(ctx)
		if err != nil {
			return nil, err
		}
		if manifests, err = a.manifests.Parsed(ctx); err != nil {
			return nil, err
		}
		if c.Plan, err = a.planPrune(ctx, manifests); err != nil {
			return nil, err
		}
	}
	var err error
	c.Differences, err = a.manifests.Applier().Diff(ctx, manifests)
	return c, err
}

// History returns the kept versions of the manifests with these names, or of all.
func (a *Apply) History(ctx context.Context) (list []apply.Revision, err error) {
	if err := a.connect(ctx); err != nil {
		return nil, err
	}
	names := a.options.Names
	if len(names) == 0 {
		names = []string{""}
	}
	for _, name := range names {
		if name != "" {
			if _, err := a.manifests.Applier().Known(ctx, name); err != nil {
				return nil, err
			}
		}
		found, err := a.manifests.Applier().History(ctx, name)
		if err != nil {
			return nil, err
		}
		list = append(list, found...)
	}
	return list, nil
}

// checkImages refuses manifests whose images were not imported on this node. It cannot check the
// images of other nodes: a Node lists only its 50 largest images.
func (a *Apply) checkImages(ctx context.Context) error {
	b := a.node.Plan.Bundle
	wanted := b.SiteImages()
	if len(wanted) == 0 {
		return nil
	}
	if !a.Exists(node.KubeletConf) {
		a.Console.Warn("this host is not a node, so the check for imported images is skipped")
		return nil
	}
	var err error
	if a.node.Watch.Containerd, err = a.NodeRuntime(ctx); err != nil {
		return err
	}
	a.node.Watch.Containerd.LeaveUnpinned() // it need not be pinned
	missing, err := a.node.Watch.Containerd.Missing(ctx, wanted)
	if err != nil {
		return err
	}
	if len(missing) > 0 {
		var names []string
		for _, i := range missing {
			names = append(names, i.Reference)
		}
		return fault.New(fault.Preflight, "these images of this file are not imported on this node:\n  - %s", strings.Join(names, "\n  - ")).
			Hint("run this on every node first: " + b.Command("import"))
	}
	a.Console.Note("this node has the images of this file; every other node needs them too: %s", b.Command("import"))
	return nil
}
