package main

import (
	"context"
	"os"
	"time"

	"github.com/spf13/cobra"

	"airlift/fault"
	"airlift/installer/cluster"
	"airlift/installer/pki"
)

const (
	// certsLeaseDuration is longer than a restart takes on slow hosts, whose waits end after 5
	// minutes without progress.
	certsLeaseDuration = 20 * time.Minute
	// certsLeasePoll is how often a control plane looks if another one is done.
	certsLeasePoll = 5 * time.Second
)

// takeTurn waits until no other control plane restarts its components. Without an API it does not
// wait: expired certificates may be why there is none. If none has expired, it is an error with
// --due, because no one watches that command.
func (f *certsFlags) takeTurn(cmd *cobra.Command, expired bool) (release func(), err error) {
	ctx := cmd.Context()
	holder := pki.NodeName(os.DirFS("/"))
	if holder == "" {
		return func() {}, nil
	}
	printed := ""
	for started := time.Now(); ; {
		has, err := f.lease(ctx, func(ctx context.Context, c *cluster.Client) (string, error) {
			return c.TakeLease(ctx, cluster.TurnLease, holder, certsLeaseDuration, time.Now())
		})
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case err != nil && f.due && !expired:
			return nil, fault.New(fault.Failure, "see 'install status'; no certificate has expired yet", "nothing was renewed, because the API does not answer: %v", err)
		case err != nil:
			warner(cmd)("not waiting for other control planes, because the API does not answer: %v", err)
			return func() {}, nil
		case has == holder:
			return func() {
				// The API server was restarted, and its client certificate may be a new one.
				_, err := f.lease(context.WithoutCancel(ctx), func(ctx context.Context, c *cluster.Client) (string, error) {
					return "", c.DropLease(ctx, cluster.TurnLease, holder)
				})
				if err != nil {
					warner(cmd)("the Lease %s in kube-system remains for %s: %v", cluster.TurnLease, certsLeaseDuration, err)
				}
			}, nil
		case time.Since(started) > certsLeaseDuration:
			return nil, fault.New(fault.Failure, "see 'journalctl -u airlift-certs-renew' there, or run the command later", "another control plane, %s, is restarting its components", has)
		}
		if has != printed {
			warner(cmd)("waiting for %s, which is restarting its components", has)
			printed = has
		}
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(certsLeasePoll):
		}
	}
}

func (f *certsFlags) lease(ctx context.Context, use func(context.Context, *cluster.Client) (string, error)) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, clusterTimeout)
	defer cancel()
	file, err := f.kubeconfigFile()
	if err != nil {
		return "", err
	}
	c, err := cluster.Load(file, "")
	if err != nil {
		return "", err
	}
	return use(ctx, c)
}
