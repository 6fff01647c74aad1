package lease

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"time"

	"k8s.io/client-go/kubernetes"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"airlift/installer/cluster"
	"airlift/installer/cluster/wait"
	"airlift/installer/config"
	"airlift/internal/fault"
)

// turnLease is the Lease that a control plane has while it restarts its components.
const turnLease = "airlift-control-plane"

const (
	// Duration is after how long without renewal a control plane loses its turn: its process was
	// killed, or no API server answered it for so long.
	Duration = 5 * time.Minute
	// turnRenewal is the pause between two renewals, turnRetry that after a failed one.
	turnRenewal = time.Minute
	turnRetry   = 5 * time.Second
	// turnUnconfirmed is how long after a renewal a component may be restarted although no API server
	// answers. It leaves a minute for the restart to begin.
	turnUnconfirmed = Duration - time.Minute
	// turnTimeout limits the wait for another control plane, whose upgrade takes long on a slow host.
	turnTimeout = time.Hour
	// turnPatience limits the time in which no API server answers. In a cluster of two control
	// planes, the API is down for up to two minutes when the other one restarts etcd.
	turnPatience = 5 * time.Minute
	// turnCallTimeout limits the requests to one API server. turnConfirmTimeout does before a restart,
	// when this host's own API server may accept connections and answer none.
	turnCallTimeout    = 10 * time.Second
	turnConfirmTimeout = 2 * time.Second
	// turnDropTimeout limits the last requests of a process.
	turnDropTimeout = 30 * time.Second
	// turnPoll is the pause between two attempts to take the turn.
	turnPoll = 2 * time.Second
)

// ErrRefused is the error with which Take gives up, if it saw no other control plane with the turn.
var ErrRefused = errors.New("no API server has accepted the Lease")

// ErrNoTurn is why Confirm refuses a restart.
var ErrNoTurn = errors.New("only one control plane may restart at a time")

// A Turn is the right to restart the components of a control plane: one process of the cluster has it
// at a time, so etcd keeps its quorum, and the other API servers answer. The process must have the
// lock of its host before it takes its turn.
type Turn struct {
	Node string // the name of this node
	// Connect returns a client of an API server, "" for the one in the kubeconfig. It is called for
	// each request, because the process may replace the credentials.
	Connect func(server string) (*cluster.Client, error)
	// Servers are URLs to try after the kubeconfig's URL: this host's own API server, and others as
	// long as the cluster has not listed them.
	Servers []string
	// Patience limits the time in which no API server answers, as long as no other control plane has its
	// turn; 0 means turnPatience.
	Patience time.Duration

	busy    chan struct{} // has an element while a goroutine uses the fields below
	lease   *lease
	others  []apiServer
	alone   bool      // the cluster has no other control plane
	renewed time.Time // when the last successful renewal began
	lostTo  string    // the node that has the turn instead
	stop    func()    // ends the renewals
}

// apiServer is the API server of another control plane. Its URL is empty if the cluster does not know
// its address.
type apiServer struct{ node, url string }

// Take waits until no other control plane has its turn, and keeps it until End.
func (t *Turn) Take(ctx context.Context, report wait.Report) error {
	t.lease, t.busy = newLease(turnLease, t.Node, Duration), make(chan struct{}, 1)
	w := wait.For{
		What: "the turn of " + t.Node, Timeout: turnTimeout, Interval: turnPoll, Report: report,
		Hint: "control planes are changed one after the other: run this command again when the other one is ready",
	}
	heard, patience, refused := time.Now(), cmp.Or(t.Patience, turnPatience), ErrRefused
	err := w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		other, err := t.renew(ctx, turnCallTimeout)
		switch {
		case err == nil && other == "":
			return true, "", nil
		case err == nil:
			// That one may restart the only API server that answers.
			heard, patience, refused = time.Now(), max(patience, turnPatience), errors.New(ErrRefused.Error())
			return false, other + " restarts its control plane, and only one may at a time", nil
		case time.Since(heard) > patience:
			return false, "", fault.New(fault.Failure, "%w %s/%s for %s: %w", refused, metav1.NamespaceSystem, turnLease, time.Since(heard).Round(time.Second), err).
				Hint("see './install status'; when an API server answers, run the same command again")
		}
		return false, err.Error(), nil
	})
	if err != nil {
		return err
	}
	renewals, cancel := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	t.stop = func() { cancel(); <-ended }
	go func() {
		defer close(ended)
		t.keep(renewals)
	}()
	return nil
}

// keep renews the turn until ctx ends or the turn is lost.
func (t *Turn) keep(ctx context.Context) {
	for pause := turnRenewal; ; {
		select {
		case <-ctx.Done():
			return
		case <-time.After(pause):
		}
		pause = turnRenewal
		switch other, err := t.renew(ctx, turnCallTimeout); {
		case err != nil:
			pause = turnRetry
		case other != "":
			return
		}
	}
}

// use waits until no other goroutine uses the turn. It is not a mutex, because requests may take long.
func (t *Turn) use(ctx context.Context) (done func(), err error) {
	select {
	case t.busy <- struct{}{}:
		return func() { <-t.busy }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// renew takes the turn, or renews it, through the first API server that answers. other is the node
// that has it instead.
func (t *Turn) renew(ctx context.Context, timeout time.Duration) (other string, err error) {
	done, err := t.use(ctx)
	if err != nil {
		return "", err
	}
	defer done()
	if t.lostTo != "" {
		return t.lostTo, nil
	}
	began := time.Now()
	err = t.each(ctx, timeout, func(ctx context.Context, c *cluster.Client) (err error) {
		if other, err = t.lease.take(ctx, c); err == nil && other == "" {
			t.learn(ctx, c)
		}
		return err
	})
	switch {
	case err != nil:
	case other == "":
		t.renewed = began
	case t.lease.held:
		t.lostTo = other
	}
	return other, err
}

// each calls do with a client for each API server, one after the other, until do succeeds.
func (t *Turn) each(ctx context.Context, timeout time.Duration, do func(context.Context, *cluster.Client) error) error {
	servers := append([]string{""}, t.Servers...)
	for _, s := range t.others {
		if s.url != "" {
			servers = append(servers, s.url)
		}
	}
	tried := map[string]bool{}
	var failed []string
	for _, server := range servers {
		c, err := t.Connect(server)
		if err == nil {
			if tried[c.Server] {
				continue
			}
			tried[c.Server] = true
			attempt, cancel := context.WithTimeout(ctx, timeout)
			err = do(attempt, c)
			cancel()
		}
		if err == nil || ctx.Err() != nil {
			return err
		}
		failed = append(failed, err.Error())
	}
	return errors.New(strings.Join(failed, "; "))
}

// Remove removes the Lease of a process of another cluster, after its data was restored.
func Remove(ctx context.Context, api kubernetes.Interface) error {
	err := wait.Retry(ctx, func() error {
		return api.CoordinationV1().Leases(metav1.NamespaceSystem).Delete(ctx, turnLease, metav1.DeleteOptions{})
	})
	if err != nil && !apierrors.IsNotFound(err) {
		return fmt.Errorf("removing the Lease %s/%s: %w", metav1.NamespaceSystem, turnLease, err)
	}
	return nil
}

// learn lists the other control planes.
func (t *Turn) learn(ctx context.Context, c *cluster.Client) {
	others, err := otherAPIServers(ctx, c.API, t.Node)
	if err == nil {
		t.others, t.alone = others, len(others) == 0
	}
}

// otherAPIServers lists the API servers of the control planes other than node, including lost
// control planes, whose Nodes stay until they are deleted.
func otherAPIServers(ctx context.Context, api kubernetes.Interface, node string) (list []apiServer, err error) {
	nodes, err := api.CoreV1().Nodes().List(ctx, metav1.ListOptions{LabelSelector: cluster.ControlPlaneLabel})
	if err != nil {
		return nil, fmt.Errorf("listing the control planes: %w", err)
	}
	addresses, err := cluster.NodesOfAPIServers(ctx, api)
	if err != nil {
		return nil, err
	}
	for _, n := range nodes.Items {
		if n.Name == node {
			continue
		}
		address := addresses[n.Name]
		for _, a := range n.Status.Addresses {
			if address == "" && a.Type == corev1.NodeInternalIP {
				address = net.JoinHostPort(a.Address, strconv.Itoa(config.DefaultBindPort))
			}
		}
		if address != "" {
			address = "https://" + address
		}
		list = append(list, apiServer{n.Name, address})
	}
	return list, nil
}

// Confirm fails if this process does not have the turn any more. It must be called before each restart
// of a component. If no API server answers, the time since the last renewal decides. In a cluster of
// one control plane nobody else can have the turn.
func (t *Turn) Confirm(ctx context.Context) error {
	done, err := t.use(ctx)
	if err != nil {
		return err
	}
	sure := t.alone && t.lostTo == ""
	if done(); sure {
		return nil
	}
	if done, _, err := t.confirm(ctx, turnConfirmTimeout); done || err != nil {
		return err
	}
	w := wait.For{
		What: "an API server to confirm the turn of " + t.Node, Timeout: turnPatience, Interval: turnPoll,
		Hint: "when an API server answers, run the same command again: it continues",
	}
	err = w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) { return t.confirm(ctx, turnCallTimeout) })
	if err == nil || ctx.Err() != nil || errors.Is(err, ErrNoTurn) {
		return err
	}
	return fault.Wrap(fmt.Errorf("%w: %w", ErrNoTurn, err), fault.Failure, fault.Hint(err))
}

func (t *Turn) confirm(ctx context.Context, timeout time.Duration) (done bool, state string, err error) {
	other, err := t.renew(ctx, timeout)
	if err == nil && other != "" {
		return false, "", fault.New(fault.Failure, "%s has lost its turn to %s: %w", t.Node, other, ErrNoTurn).
			Hint("when the command on " + other + " has finished, run the same command again: it continues")
	}
	if err == nil {
		return true, "", nil
	}
	finished, ended := t.use(ctx)
	if ended != nil {
		return false, "", ended
	}
	defer finished()
	return time.Since(t.renewed) < turnUnconfirmed, err.Error(), nil
}

// CheckOthers fails if the cluster has other control planes, and none of their API servers is ready.
func (t *Turn) CheckOthers(ctx context.Context) error {
	done, err := t.use(ctx)
	if err != nil {
		return err
	}
	others := t.others
	if done(); len(others) == 0 {
		return nil
	}
	w := wait.For{
		What: "the API server of another control plane to be ready", Timeout: turnDropTimeout,
		Hint: fmt.Sprintf("start the other control planes; if one is lost permanently, remove it: ./install node remove %s", others[0].node),
	}
	return w.Until(ctx, nil, func(ctx context.Context) (bool, string, error) {
		var states []string
		for _, s := range others {
			if s.url == "" {
				states = append(states, s.node+": its address is not known")
				continue
			}
			c, err := t.Connect(s.url)
			if err != nil {
				return false, "", err
			}
			attempt, cancel := context.WithTimeout(ctx, turnCallTimeout)
			ready, state := c.Ready(attempt)
			cancel()
			if ready {
				return true, "", nil
			}
			states = append(states, s.node+": "+state)
		}
		return false, strings.Join(states, "; "), nil
	})
}

// End gives up the turn.
func (t *Turn) End(ctx context.Context) error {
	t.stop()
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), turnDropTimeout)
	defer cancel()
	err := t.each(ctx, turnCallTimeout, t.lease.drop)
	if t.alone || t.lostTo != "" {
		return nil
	}
	return err
}
