package upgrade

import (
	"bytes"
	"cmp"
	"context"
	"fmt"
	"maps"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/documents"
	"airlift/fault"
	"airlift/installer/adoption"
	"airlift/installer/config"
	"airlift/installer/host/ledger"
	"airlift/installer/render"
	"airlift/installer/status"
)

// An adopted is what the first upgrade of an adopted node needs: from then on, Airlift's unit starts the kubelet, with the
// flags in KubeletFlagsFile and the configuration in KubeletConfigFile.
type adopted struct {
	kubelet *ledger.AdoptedKubelet
	input   adoption.Input
	notes   []string // what the upgrade carries over, a line each
}

// readAdopted returns nil unless this is the first upgrade of an adopted node.
func (k *kubelet) readAdopted(ctx context.Context) (err error) {
	k.adopted = nil
	is := status.AdoptedKubelet(k.node.Existing)
	if is == nil {
		return nil
	}
	a := &adopted{kubelet: is}
	if a.input, err = adoption.ReadKubelet(ctx, k.node.Existing, is); err == nil {
		k.adopted = a
	}
	return err
}

// kubeletArgs is the variable in KubeletFlagsFile.
const kubeletArgs = "KUBELET_KUBEADM_ARGS"

var (
	kubeletLine = regexp.MustCompile(`(?m)^[ \t]*` + kubeletArgs + `=.*\n?`)
	continued   = regexp.MustCompile(`(?m)^[ \t]*` + kubeletArgs + `=.*\\$`)
)

// flags returns KubeletFlagsFile, which is file now, with the flags that the kubelet runs with and that a version has; nil if it
// stays as it is.
func (a *adopted) flags(file []byte, version string) ([]byte, error) {
	if a == nil {
		return nil, nil
	}
	f, err := a.input.KubeletFlags(version)
	if err != nil {
		return nil, err
	}
	if !f.Changed && file != nil {
		return nil, nil
	}
	if continued.Match(file) {
		return nil, fault.New(fault.Preflight, "reading %s: the value of %s continues on another line", config.KubeletFlagsFile, kubeletArgs).Hint("write it in one line")
	}
	var words []string
	for _, flag := range f.Kept {
		word := "--" + flag.Name + "=" + flag.Value
		if !adoption.Writable(flag) {
			return nil, fault.New(fault.Preflight, "the kubelet's argument %q cannot be written to %s", cmp.Or(flag.Name, flag.Value), config.KubeletFlagsFile).
				Hint("set the field of the KubeletConfiguration instead, remove the argument from the kubelet's unit, and run: systemctl daemon-reload; systemctl restart kubelet")
		}
		words = append(words, word)
	}
	for _, changed := range []struct {
		what  string
		flags []config.Arg
	}{
		{"the kubelet loses a flag that " + version + " does not have: ", f.Gone},
		{"the kubelet does not run with a flag in " + config.KubeletFlagsFile + ", which is removed: ", f.Unused},
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

func (a *adopted) note(text string) {
	if !slices.Contains(a.notes, text) {
		a.notes = append(a.notes, text)
	}
}

// instance returns the instance configuration with the fields of the kubelet's own file that differ from the configuration that
// all nodes share.
func (a *adopted) instance(own, shared, instance []byte) ([]byte, error) {
	documentsOf := map[string]any{}
	for name, data := range map[string][]byte{"own": own, "shared": shared, "instance": instance} {
		var fields map[string]any
		if err := documents.Unmarshal(data, &fields); err != nil {
			return nil, err
		}
		documentsOf[name] = fields
	}
	is := func(name string) map[string]any { fields, _ := documentsOf[name].(map[string]any); return fields }
	fields, _ := adoption.InstanceConfig(is("own"), is("shared"))
	delete(fields, "cgroupDriver") // the upgrade writes this host's driver
	if len(fields) == 0 {
		return instance, nil
	}
	a.note(fmt.Sprintf("the kubelet keeps fields of %s, in %s: %s", a.kubelet.Config, render.KubeletInstanceConfigPath, strings.Join(slices.Sorted(maps.Keys(fields)), ", ")))
	for name, value := range is("instance") {
		if _, ok := fields[name]; !ok {
			fields[name] = value
		}
	}
	return yaml.Marshal(fields)
}

// adoptedInstance returns the instance configuration for the first upgrade of an adopted node whose kubelet has another file than
// KubeletConfigFile; for others, instance itself.
func (k *kubelet) adoptedInstance(shared, instance []byte) ([]byte, error) {
	if k.adopted == nil || k.adopted.kubelet.Config == "" || k.adopted.kubelet.Config == config.KubeletConfigFile {
		return instance, nil
	}
	file := k.adopted.kubelet.Config
	own, err := os.ReadFile(k.node.Existing.Path(file))
	if err == nil {
		instance, err = k.adopted.instance(own, shared, instance)
	}
	if err != nil {
		return nil, fault.Wrap(fmt.Errorf("reading %s, the kubelet's configuration when this node was adopted: %w", file, err), fault.Preflight, "restore it; if the kubelet has another file now: ./install disown; ./install adopt")
	}
	return instance, nil
}

// carriedOver refuses to start the new kubelet of an adopted node without what it had.
func (k *kubelet) carriedOver() error {
	if k.adopted == nil {
		return nil
	}
	files, err := k.files()
	if err != nil {
		return err
	}
	for _, f := range files {
		now, err := k.node.Present(f.Path)
		if err != nil {
			return err
		}
		if !bytes.Equal(now, f.Data) {
			return fault.New(fault.Preflight, "%s does not have what the kubelet of this adopted node has elsewhere", f.Path).
				Hint("run the phase kubelet-config first: ./install " + k.options.command() + " phase kubelet-config")
		}
	}
	return nil
}
