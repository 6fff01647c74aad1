package upgrade

import (
	"fmt"
	"os"

	"airlift/installer/config"
	"airlift/internal/fault"
)

// adoptedInstance returns the instance configuration for the first upgrade of an adopted node whose kubelet has another file than
// KubeletConfigFile; for others, instance itself.
func (k *kubelet) adoptedInstance(shared, instance []byte) ([]byte, error) {
	if k.adopted == nil || k.facts.change != nil || k.adopted.Kubelet.Config == "" || k.adopted.Kubelet.Config == config.KubeletConfigFile {
		return instance, nil
	}
	file := k.adopted.Kubelet.Config
	own, err := os.ReadFile(k.node.Existing.Path(file))
	if err == nil {
		instance, err = k.adopted.Instance(own, shared, instance)
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
	differ, err := k.node.Differing(files...)
	if err == nil && len(differ) > 0 {
		err = fault.New(fault.Preflight, "%s does not have what the kubelet of this adopted node has elsewhere", differ[0].Path).
			Hint("run the phase kubelet-config first: ./install " + k.options.command() + " phase kubelet-config")
	}
	return err
}
