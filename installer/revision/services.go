package revision

import (
	"context"
	"time"

	"airlift/installer/cluster/wait"
	"airlift/installer/cluster/workloads"
	"airlift/installer/phases"
	"airlift/internal/fault"
)

// WaitServices waits until Services follow their pods: a controller manager acts, and before a drain the
// new kube-proxies are Ready, and each has rules that are up to date. Otherwise requests go to pods that
// the drain has ended. It ends with an error only if ctx ends.
func WaitServices(ctx context.Context, a *phases.API, drainIsNext bool) error {
	tell := func(err error) error {
		if err != nil && ctx.Err() == nil {
			a.Console.Warn("%v", err)
			if hint := fault.Hint(err); hint != "" {
				a.Console.Note("%s", hint)
			}
		}
		return ctx.Err()
	}
	err := tell(workloads.WaitForControllerManager(ctx, a.Client.API, ControllersTimeout, a.Report))
	if err != nil || !drainIsNext {
		return err
	}
	if err := tell(workloads.WaitForProxies(ctx, a.Client.API, wait.Limit{Timeout: ControllersTimeout, Report: a.Report})); err != nil {
		return err
	}
	long := time.AfterFunc(longWait, func() {
		a.Console.Note("waiting for the kube-proxy of all nodes, which need up to two minutes after an API server was away")
	})
	defer long.Stop()
	return tell(workloads.WaitForProxyRules(ctx, a.Client.API, wait.Limit{Timeout: proxyRulesTimeout, Report: a.Report}))
}

// longWait is the time after which a wait is worth a line.
const longWait = 5 * time.Second

// ControllersTimeout is longer than a lease lasts, 15 s, and a slow host needs to start the
// controllers.
const ControllersTimeout = 90 * time.Second

// proxyRulesTimeout is a little longer than the two pauses of a kube-proxy after an API server was away,
// of up to 60 s each.
const proxyRulesTimeout = 130 * time.Second
