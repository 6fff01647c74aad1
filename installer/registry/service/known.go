package service

import (
	"encoding/json"
	"log/slog"
	"os"
	"reflect"
	"sync"

	"airlift/installer/config"
	"airlift/internal/atomicfile"
)

// A known has what the service knew last of the cluster, for a start while the API does not answer: then pods may only
// start with images of this service.
type known struct {
	path string
	log  *slog.Logger

	mu      sync.Mutex
	unsaved bool                // the file could not be written
	Nodes   []string            `json:"nodes"` // nil if they were never known
	Bundles []config.KeptBundle `json:"bundles"`
}

func (k *known) load() error {
	k.mu.Lock()
	defer k.mu.Unlock()
	data, err := os.ReadFile(k.path)
	if err != nil {
		return err
	}
	return json.Unmarshal(data, k)
}

func (k *known) setNodes(names []string) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unsaved || !reflect.DeepEqual(k.Nodes, names) {
		k.Nodes = names
		k.save()
	}
}

func (k *known) setBundles(bundles []config.KeptBundle) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if k.unsaved || !reflect.DeepEqual(k.Bundles, bundles) {
		k.Bundles = bundles
		k.save()
	}
}

func (k *known) save() {
	data, err := json.Marshal(k)
	if err == nil {
		err = atomicfile.Write(k.path, data, 0o600)
	}
	if k.unsaved = err != nil; k.unsaved {
		k.log.Warn("what is known of the cluster cannot be stored", "error", err)
	}
}
