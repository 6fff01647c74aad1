package status

import (
	"os"
	"time"

	"airlift/installer/config"
	"airlift/installer/host"
	"airlift/installer/host/filesystem"
	"airlift/installer/host/ledger"
	"airlift/installer/render"
)

// An Adoption names the tool that made an adopted node.
type Adoption struct {
	Maker      string    `json:"maker"`
	Kubernetes string    `json:"kubernetes"` // the version when it was adopted
	Time       time.Time `json:"time"`
	Notes      []string  `json:"notes"` // what was odd
}

// AdoptedKubelet returns how the tool that made an adopted node starts its kubelet. It is nil on other nodes, and while
// the kubelet has Airlift's unit: since the first upgrade, also if that was before disown and adopt.
func AdoptedKubelet(h *host.Host) *ledger.AdoptedKubelet {
	a := h.Records().Adopted()
	if a == nil {
		return nil
	}
	if hasText(h, render.KubeletUnitPath, render.KubeletUnit) && hasText(h, render.KubeletDropInPath, render.KubeletDropIn) {
		return nil
	}
	e, ok := h.Records().Find(ledger.File, render.KubeletDropInPath)
	now, err := filesystem.Sum(h.Path(render.KubeletDropInPath))
	if !ok || err != nil || !e.Wrote(now) {
		return &a.Kubelet
	}
	if original, err := filesystem.Sum(h.Path(e.Original)); e.Original != "" && err == nil && original == now {
		return &a.Kubelet // undo has restored it
	}
	return nil
}

// hasText reports whether a file has exactly this text.
func hasText(h *host.Host, path, text string) bool {
	data, err := os.ReadFile(h.Path(path))
	return err == nil && string(data) == text
}

// KubeletConfigFile returns the path of the kubelet's configuration on this host.
func KubeletConfigFile(h *host.Host) string {
	if k := AdoptedKubelet(h); k != nil && k.Config != "" {
		return k.Config
	}
	return config.KubeletConfigFile
}
