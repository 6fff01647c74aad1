package certs

import (
	"context"
	"fmt"
	"io"
	"strings"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/node"
	"airlift/internal/fault"
)

// Timer renews certificates that are due. It runs every night; the delay spreads control
// planes over six hours.
var Timer = host.Timer{
	Name:     "airlift-certs-renew",
	About:    "Renew the certificates of this control plane that are due",
	Schedule: "OnCalendar=*-*-* 00:00:00\nRandomizedDelaySec=6h\nFixedRandomDelay=true\nPersistent=true",
	Command:  "certs renew all --due --restart",
}

// StartTimer starts the timer on this control plane. zone is the time zone of its midnight, "" for the host's.
func StartTimer(ctx context.Context, h *host.Host, zone string, out io.Writer) error {
	if err := host.CheckTimeZone(h, zone); err != nil {
		return err
	}
	if !node.FileExists(h, config.ManifestsDir+"/kube-apiserver.yaml") {
		return fault.New(fault.Failure, "this host is not a control plane: %s/kube-apiserver.yaml does not exist", config.ManifestsDir).Hint("run it on each control plane; kubelets renew their own certificates")
	}
	if err := node.Managed(h, "; or run './install certs renew all --due --restart' from your own timer"); err != nil {
		return err
	}
	timer := Timer
	timer.Settings = "certs auto"
	if zone != "" {
		timer.Settings += " --time-zone " + zone
		timer.Schedule = strings.Replace(timer.Schedule, "\n", " "+zone+"\n", 1)
	}
	changed, err := h.EnsureTimer(ctx, timer)
	if err != nil {
		return err
	}
	done := "is already active"
	if changed {
		done = "started"
	}
	fmt.Fprintf(out, "%s.timer %s: it renews certificates when less than a third of their validity period is left\n", Timer.Name, done)
	return nil
}

// RemoveTimer removes the timer.
func RemoveTimer(ctx context.Context, h *host.Host, out io.Writer) error {
	if err := h.RemoveTimer(ctx, Timer); err != nil {
		return err
	}
	fmt.Fprintf(out, "%s.timer removed: certificates are not renewed automatically\n", Timer.Name)
	return nil
}
