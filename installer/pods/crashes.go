package pods

import (
	"context"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"airlift/images/store"
	"airlift/installer/host/systemd"
	"airlift/installer/redact"
	"airlift/internal/fault"
)

// A process that ends hopelessEnds times with the same error, over at least
// hopelessTime, ends again. The kubelet restarts a container at once and then
// after 10, 20 and 40 s; systemd restarts the kubelet after 10 s. Only runs
// shorter than shortRun count, because a long run may have waited for another
// process: an API server without an etcd ends after 20 s, and recovers.
const (
	hopelessEnds = 4
	hopelessTime = 30 * time.Second
	shortRun     = 10 * time.Second
)

// settleTime is how long the kubelet may take to replace a static pod whose manifest changed. Until
// then, the ended container of an earlier run of Airlift may belong to the replaced pod.
const settleTime = 20 * time.Second

// journalDelay is how long the journal may take to show the last lines of a
// process that ended. systemd starts the kubelet again after 10 s.
const journalDelay = 5 * time.Second

// crashLines is how many lines of a log are shown.
const crashLines = 5

// theKubelet is the kubelet's name among the processes.
const theKubelet = "the kubelet"

// APIComponents are the containers of the API server and of its etcd.
var APIComponents = []string{"etcd", "kube-apiserver"}

// An end is how a process of this node ended: a container or the kubelet.
type end struct {
	process           string // "container etcd of pod kube-system/etcd-host1"
	component         string // the container's name
	how               string // "exited with code 1"
	lines             []string
	log               string // the command that shows the whole log
	started, finished time.Time
	final             bool // it is not started again
}

func (e end) String() string {
	text := e.process + " " + e.how + e.logText()
	if slices.ContainsFunc(e.lines, lostLease.MatchString) {
		text += "\n  " + slowHost
	}
	return text
}

// lostLease is the last message of a controller manager or scheduler that could not renew its
// lease in time, which is 10 s by default.
var lostLease = regexp.MustCompile(`(?i)leaderelection lost`)

const slowHost = "This host was too slow for it and the API server. It restarts automatically. If it exits repeatedly, " +
	"set leader-elect-lease-duration: 60s and leader-elect-renew-deadline: 45s in the extraArgs of controllerManager and scheduler (--config)"

func (e end) logText() string {
	if len(e.lines) == 0 {
		return "; its log is empty"
	}
	return "; the last lines of its log:\n  " + strings.Join(e.lines, "\n  ")
}

// short reports whether the process ended soon after its start.
func (e end) short() bool { return e.started.Unix() <= 0 || e.finished.Sub(e.started) < shortRun }

var digits = regexp.MustCompile(`[0-9]+`)

// reason identifies a failure: exit status and last log line, without numbers such as times.
func (e end) reason() string {
	if len(e.lines) == 0 {
		return e.how
	}
	return e.how + ": " + digits.ReplaceAllString(e.lines[len(e.lines)-1], "0")
}

// containers is the part of a container runtime that crashes needs.
type containers interface {
	Containers(context.Context) ([]store.Container, error)
	Exit(ctx context.Context, id string) (store.Exit, error)
}

// crashes records how containers of the cluster's components, and the kubelet,
// end on this node.
type crashes struct {
	began   time.Time
	ends    map[string][]end // by process, in order
	down    map[string]bool  // processes that do not run now
	listed  bool             // the containers have been listed
	created map[string]bool  // names of the containers that were seen
	handled map[string]bool  // ends that were seen, by container ID or the kubelet's time
	shown   map[string]bool  // processes and reasons that the user has seen
}

func newCrashes(began time.Time) *crashes {
	return &crashes{began: began, ends: map[string][]end{}, down: map[string]bool{}, created: map[string]bool{}, handled: map[string]bool{}, shown: map[string]bool{}}
}

// componentNamespaces are the namespaces of the cluster's components.
var componentNamespaces = []string{"kube-system", "kube-flannel"}

// seeContainers records the containers that have ended since the last call, and
// returns their ends.
func (c *crashes) seeContainers(ctx context.Context, runtime containers, now time.Time) (news []end, err error) {
	list, err := runtime.Containers(ctx)
	if err != nil {
		return nil, err
	}
	c.listed = true
	slices.SortFunc(list, func(a, b store.Container) int { return a.Created.Compare(b.Created) })
	newest := map[string]store.Container{}
	for _, k := range list {
		newest[processOf(k)] = k
		c.created[k.Name] = true
	}
	for process, k := range newest {
		c.down[process] = k.Exited
	}
	for _, k := range list {
		if !k.Exited || c.handled[k.ID] || !slices.Contains(componentNamespaces, k.Namespace) {
			continue
		}
		exit, err := runtime.Exit(ctx, k.ID)
		if err != nil {
			continue // the kubelet has removed it meanwhile
		}
		replaced := newest[processOf(k)].ID != k.ID || now.Sub(c.began) < settleTime
		if exit.Finished.Before(c.began) && replaced {
			continue
		}
		c.handled[k.ID] = true
		if c.ordinary(k, exit) {
			continue
		}
		news = append(news, c.add(end{
			process: processOf(k), component: k.Name, how: howItExited(exit), lines: redact.LogTail(exit.LogPath, crashLines), log: "cat " + exit.LogPath,
			started: exit.Started, finished: exit.Finished,
		}))
	}
	return news, nil
}

func processOf(k store.Container) string {
	return fmt.Sprintf("container %s of pod %s/%s", k.Name, k.Namespace, k.Pod)
}

func howItExited(exit store.Exit) string {
	how := fmt.Sprintf("exited with code %d", exit.Code)
	if exit.Reason != "" && exit.Reason != "Error" {
		how += " (" + exit.Reason + ")"
	}
	if exit.Message != "" {
		how += ": " + exit.Message
	}
	return how
}

// ordinary reports whether an end is not an error: the process was done, or the kubelet stopped it
// for the first time, for example because its manifest changed. The kubelet also stops a container
// whose liveness probe fails, but more than once. After a reboot, containerd does not know how
// containers ended.
func (c *crashes) ordinary(k store.Container, exit store.Exit) bool {
	const killed, terminated = 128 + 9, 128 + 15
	switch {
	case exit.Code == 0, exit.Reason == "Unknown":
		return true
	case exit.Code != killed && exit.Code != terminated, exit.Reason == "OOMKilled":
		return false
	}
	pod := "stopped " + k.PodUID + " " + k.Name
	again := c.handled[pod]
	c.handled[pod] = true
	return !again
}

// seeKubelet records the kubelet's end, and returns it if it is new. tail
// returns the last lines of its log.
func (c *crashes) seeKubelet(state systemd.UnitState, tail func() []string) (news []end) {
	c.down[theKubelet] = state.Ended()
	if !state.Ended() || state.Exit.Finished.Before(c.began) {
		return nil
	}
	id := theKubelet + state.Exit.Finished.String()
	if c.handled[id] {
		return nil
	}
	lines := tail()
	if len(lines) == 0 && time.Since(state.Exit.Finished) < journalDelay {
		return nil // the next look has them
	}
	c.handled[id] = true
	how := fmt.Sprintf("exited with code %d", state.Exit.Code)
	if state.Exit.Signal {
		how = fmt.Sprintf("was killed by signal %d", state.Exit.Code)
	}
	return []end{c.add(end{
		process: theKubelet, how: how, lines: lines, log: "journalctl -u kubelet -e",
		started: state.Exit.Started, finished: state.Exit.Finished, final: state.Active == "failed",
	})}
}

func (c *crashes) add(e end) end {
	c.ends[e.process] = append(c.ends[e.process], e)
	return e
}

// isNew reports whether the user has not yet seen that a process ended for this
// reason.
func (c *crashes) isNew(e end) bool {
	id := e.process + " " + e.reason()
	seen := c.shown[id]
	c.shown[id] = true
	return !seen
}

// forgetAPIClients removes the ends of those components that cannot work without
// an API server.
func (c *crashes) forgetAPIClients() {
	for process, ends := range c.ends {
		if process != theKubelet && !slices.Contains(APIComponents, ends[0].component) {
			delete(c.ends, process)
		}
	}
}

// repeated returns how often a process has ended with its latest error, after
// short runs, and since when.
func (c *crashes) repeated(process string) (last end, times int, since time.Time) {
	for _, e := range slices.Backward(c.ends[process]) {
		if times == 0 {
			last = e
		}
		if !e.short() || e.reason() != last.reason() {
			break
		}
		times, since = times+1, e.finished
	}
	return last, times, since
}

// hopeless returns an error if one of the needed components, or the kubelet,
// will not recover.
func (c *crashes) hopeless(needed []string, now time.Time) error {
	for _, process := range c.processes() {
		last, times, since := c.repeated(process)
		if !c.down[process] || process != theKubelet && !slices.Contains(needed, last.component) {
			continue
		}
		hint := "correct the cause and run this command again; the whole log: " + last.log
		switch {
		case last.final:
			return fault.New(fault.Failure, "%s %s, and systemd does not restart it%s", last.process, last.how, last.logText()).Hint(hint)
		case times >= hopelessEnds && now.Sub(since) >= hopelessTime:
			return fault.New(fault.Failure, "%s %s, %d times in %s with the same error%s",
				last.process, last.how, times, now.Sub(since).Round(time.Second), last.logText()).Hint(hint)
		}
	}
	return nil
}

// processes returns the processes that have ended, in order of their names.
func (c *crashes) processes() (names []string) {
	for process := range c.ends {
		names = append(names, process)
	}
	slices.Sort(names)
	return names
}

// explain adds to the error of a wait how each process ended. Processes that do not run now come
// first.
func (c *crashes) explain(err error) error {
	var last []end
	for _, process := range c.processes() {
		last = append(last, c.ends[process][len(c.ends[process])-1])
	}
	if len(last) == 0 {
		return err
	}
	slices.SortStableFunc(last, func(a, b end) int {
		switch {
		case c.down[a.process] == c.down[b.process]:
			return 0
		case c.down[a.process]:
			return -1
		}
		return 1
	})
	var text strings.Builder
	for _, e := range last {
		text.WriteString("\n" + e.String())
	}
	return fault.Wrap(fmt.Errorf("%w%s", err, text.String()), fault.ExitCode(err), "see the whole log: "+last[0].log)
}
