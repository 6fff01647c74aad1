package adoption

import (
	"context"
	"fmt"
	"os"
	"path"

	"airlift/fault"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/systemd"
)

// ReadKubelet reads what KubeletFlags and ExtraFlags need of an adopted node, before its first upgrade. A kubelet that
// does not run has the flags that it had when the node was adopted.
func ReadKubelet(ctx context.Context, h *host.Host, adopted *ledger.AdoptedKubelet) (Input, error) {
	in := Input{Root: os.DirFS(h.Path("/"))}
	state, err := h.Systemd().Unit(ctx, kubeletUnitName)
	if err != nil {
		return in, err
	}
	in.Units = map[string]systemd.UnitState{kubeletUnitName: state}
	in.Kubelet = reader{&in, h}.process(kubeletUnitName)
	if len(in.Unread) > 0 {
		return in, fault.New(fault.Failure, "reading %s: %s", in.Unread[0].What, in.Unread[0].Why).Hint("see: systemctl status kubelet")
	}
	if in.Kubelet.PID == 0 {
		in.Kubelet.Args = adopted.Args
	}
	k := in.kubelet(filesOf(in.Root))
	for _, file := range state.DropIns {
		if what := k.replaces(file); what != "" && k.stays(file) && path.Base(file) > base10 {
			return in, fault.New(fault.Preflight, "the drop-in %s sets %s, and systemd reads it after Airlift's %s: the new kubelet would not start as it should", file, what, base10).
				Hint(fmt.Sprintf("write its flags to /etc/default/kubelet, as KUBELET_EXTRA_ARGS=\"…\", and remove it: rm %s; systemctl daemon-reload; systemctl restart kubelet", fault.Word(file)))
		}
	}
	return in, k.host.err()
}
