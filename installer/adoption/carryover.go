package adoption

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/systemd"
	"airlift/installer/node"
	"airlift/installer/render"
	"airlift/internal/documents"
	"airlift/internal/fault"
)

// A CarryOver is what the first upgrade of an adopted node needs: from then on, Airlift's unit starts the kubelet, with the
// flags in KubeletFlagsFile and the configuration in KubeletConfigFile.
type CarryOver struct {
	Kubelet *ledger.AdoptedKubelet
	Input   Input
	Notes   []string // what the upgrade carries over, a line each
}

// ReadCarryOver reads the kubelet of an adopted node before its first upgrade; nil on another node. A kubelet that does not run has
// the flags that it had when the node was adopted.
func ReadCarryOver(ctx context.Context, h *host.Host) (*CarryOver, error) {
	adopted := node.AdoptedKubelet(h)
	if adopted == nil {
		return nil, nil
	}
	in := Input{Root: os.DirFS(h.Path("/"))}
	state, err := h.Systemd().Unit(ctx, kubeletUnitName)
	if err != nil {
		return nil, err
	}
	in.Units = map[string]systemd.UnitState{kubeletUnitName: state}
	in.Kubelet = reader{&in, h}.process(kubeletUnitName)
	if len(in.Unread) > 0 {
		return nil, fault.New(fault.Failure, "reading %s: %s", in.Unread[0].What, in.Unread[0].Why).Hint("see: systemctl status kubelet")
	}
	if in.Kubelet.PID == 0 {
		in.Kubelet.Args = adopted.Args
	}
	k := in.kubelet(filesOf(in.Root))
	for _, file := range state.DropIns {
		if what := k.replaces(file); what != "" && k.stays(file) && path.Base(file) > base10 {
			return nil, fault.New(fault.Preflight, "the drop-in %s sets %s, and systemd reads it after Airlift's %s: the new kubelet would not start as it should", file, what, base10).
				Hint(fmt.Sprintf("write its flags to /etc/default/kubelet, as KUBELET_EXTRA_ARGS=\"…\", and remove it: rm %s; systemctl daemon-reload; systemctl restart kubelet", fault.Word(file)))
		}
	}
	if err := k.host.err(); err != nil {
		return nil, err
	}
	return &CarryOver{Kubelet: adopted, Input: in}, nil
}

// kubeletArgs is the variable in KubeletFlagsFile.
const kubeletArgs = "KUBELET_KUBEADM_ARGS"

var (
	kubeletLine = regexp.MustCompile(`(?m)^[ \t]*` + kubeletArgs + `=.*\n?`)
	continued   = regexp.MustCompile(`(?m)^[ \t]*` + kubeletArgs + `=.*\\$`)
)

// Flags returns KubeletFlagsFile, which is file now, with the flags that the kubelet runs with and that a version has; nil if it
// stays as it is.
func (a *CarryOver) Flags(file []byte, version string) ([]byte, error) {
	if a == nil {
		return nil, nil
	}
	k := a.Input.kubelet(filesOf(a.Input.Root))
	f := k.flags(version)
	if err := k.host.err(); err != nil {
		return nil, err
	}
	if !f.changed && file != nil {
		return nil, nil
	}
	if continued.Match(file) {
		return nil, fault.New(fault.Preflight, "reading %s: the value of %s continues on another line", config.KubeletFlagsFile, kubeletArgs).Hint("write it in one line")
	}
	var words []string
	for _, flag := range f.kept {
		word := "--" + flag.Name + "=" + flag.Value
		if !writable(flag) {
			return nil, fault.New(fault.Preflight, "the kubelet's argument %q cannot be written to %s", cmp.Or(flag.Name, flag.Value), config.KubeletFlagsFile).
				Hint(setField)
		}
		words = append(words, word)
	}
	for _, changed := range []struct {
		what  string
		flags []config.Arg
	}{
		{"the kubelet loses a flag that " + version + " does not have: ", f.gone},
		{"the kubelet does not run with a flag in " + config.KubeletFlagsFile + ", which is removed: ", f.unused},
	} {
		for _, flag := range changed.flags {
			a.note(changed.what + "--" + flag.Name)
		}
	}
	next := kubeletLine.ReplaceAll(file, nil)
	if len(next) > 0 && !bytes.HasSuffix(next, []byte("\n")) {
		next = append(next, '\n')
	}
	next = append(next, kubeletArgs+"="+strconv.Quote(strings.Join(words, " "))+"\n"...)
	a.note("the kubelet keeps the other flags that it runs with: flags in its unit move to " + config.KubeletFlagsFile)
	return next, nil
}

func (a *CarryOver) note(text string) {
	if !slices.Contains(a.Notes, text) {
		a.Notes = append(a.Notes, text)
	}
}

// Instance returns the instance configuration with the fields of the kubelet's own file that differ from the configuration that
// all nodes share.
func (a *CarryOver) Instance(own, shared, instance []byte) ([]byte, error) {
	var of [3]map[string]any
	for i, data := range [][]byte{own, shared, instance} {
		if err := documents.Unmarshal(data, &of[i]); err != nil {
			return nil, err
		}
	}
	fields, _ := instanceConfig(of[0], of[1])
	delete(fields, "cgroupDriver") // the upgrade writes this host's driver
	if len(fields) == 0 {
		return instance, nil
	}
	a.note(fmt.Sprintf("the kubelet keeps fields of %s, in %s: %s", a.Kubelet.Config, render.KubeletInstanceConfigPath, strings.Join(slices.Sorted(maps.Keys(fields)), ", ")))
	for name, value := range of[2] {
		if !has(fields, name) {
			fields[name] = value
		}
	}
	return yaml.Marshal(fields)
}
