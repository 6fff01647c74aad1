package secrets

import (
	"context"

	"airlift/installer/host/filesystem"
	"airlift/installer/revision"
)

// Left returns how often the keys have to change until a goal is reached.
func (k *Keys) Left(g Goal) (changes int, err error) {
	for {
		stage, err := k.Next(g)
		if err != nil || stage.Next == nil {
			return changes, err
		}
		k = stage.Next
		changes++
	}
}

// Began reports whether a Change of this host was not finished.
func (c *ControlPlane) Began() (bool, error) {
	if !filesystem.Exists(c.Existing.Path(nextPath)) {
		return false, nil
	}
	r, err := revision.Read(c.Existing, revision.Reconfigure)
	return r != nil && !r.Finished, err
}

// Stale counts the Secrets in etcd that the API server of this host would write in another way.
func (c *ControlPlane) Stale(ctx context.Context) (int, error) {
	k, err := c.Keys()
	if err != nil || k == nil {
		return 0, err
	}
	scan := NewScan(k)
	err = c.Walk(ctx, scan.Add)
	return len(scan.Stale), err
}
