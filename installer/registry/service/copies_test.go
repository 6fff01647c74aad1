package service

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"airlift/bundle"
	"airlift/installer/config"
	"airlift/installer/registry"
	"airlift/installer/registry/store"
)

// cluster starts control planes with one CA, of which the first ones have files. All know the others, and no list yet.
func startCluster(t *testing.T, n int, files map[int][]string) (rigs []*rig) {
	t.Helper()
	return startClusterAt(t, "127.0.0.1", n, files)
}

// startClusterAt is startCluster with control planes that have only this address.
func startClusterAt(t *testing.T, address string, n int, files map[int][]string) (rigs []*rig) {
	t.Helper()
	var shared *authority
	for i := range n {
		r := start(t, func(r *rig) {
			if shared == nil {
				shared = r.authority
			}
			// The same CA.
			for _, name := range []string{"ca.crt", "ca.key"} {
				data, err := os.ReadFile(filepath.Join(shared.dir, name))
				if err != nil {
					t.Fatal(err)
				}
				if err := os.WriteFile(filepath.Join(r.dir, name), data, 0o600); err != nil {
					t.Fatal(err)
				}
			}
			for _, name := range []string{"apiserver.crt", "apiserver.key"} {
				if err := os.Remove(filepath.Join(r.dir, name)); err != nil {
					t.Fatal(err)
				}
			}
			r.address, r.settings.Listen = address, net.JoinHostPort(address, "0")
			r.ensure(t)
			r.authority = &authority{dir: r.dir, address: address, cert: shared.cert, key: shared.key}
			r.api.trust = r.trust(shared.kubelet(t, node))
		}, files[i]...)
		rigs = append(rigs, r)
	}
	for i, r := range rigs {
		var others []netip.AddrPort
		for j, o := range rigs {
			if i != j {
				others = append(others, netip.MustParseAddrPort(o.connections.Addr().String()))
			}
		}
		r.copies.useServers(others) // as usePeers, which leaves out addresses of this host
	}
	return rigs
}

// setList makes the cluster list bundles.
func setList(rigs []*rig, bundles ...config.KeptBundle) {
	for _, r := range rigs {
		r.api.change(func() { r.api.list = &config.EmbeddedRegistry{Used: true, Bundles: bundles} })
	}
}

func describe(t *testing.T, path string) config.KeptBundle {
	t.Helper()
	f, err := bundle.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	m, err := f.Manifest()
	if err != nil {
		t.Fatal(err)
	}
	return registry.Describe(f, m)
}

// has reports whether a control plane has exactly these bytes of a bundle.
func (r *rig) has(id string, data []byte) bool {
	is, err := os.ReadFile(filepath.Join(r.settings.Directory, id))
	return err == nil && bytes.Equal(is, data) && r.state().Serves(id)
}

// Each control plane copies what the cluster lists, and removes what it does not list any more.
func TestControlPlanesCopy(t *testing.T) {
	first, data, id := sample(t, 1)
	second, other, otherID := sample(t, 2)
	rigs := startCluster(t, 3, map[int][]string{0: {first}, 1: {second}})
	setList(rigs, describe(t, first), describe(t, second))
	for i, r := range rigs {
		eventually(t, func() bool { return r.has(id, data) && r.has(otherID, other) })
		if s := r.state(); len(s.Problems) > 0 || s.Bundles[0].ID != id || len(s.Peers) != 2 {
			t.Errorf("control plane %d: %+v", i, s)
		}
	}
	// Files that were just placed stay: import places a file before it lists it.
	setList(rigs, describe(t, second))
	for _, r := range rigs {
		r.copies.work(t.Context())
		if !r.has(id, data) {
			t.Error("a file that was just placed was removed")
		}
		old := time.Now().Add(-2 * unlistedFor)
		if err := os.Chtimes(filepath.Join(r.settings.Directory, id), old, old); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(r.settings.Directory, otherID), old, old); err != nil {
			t.Fatal(err)
		}
		r.copies.work(t.Context())
		eventually(t, func() bool {
			return r.status(t, r.client(t, r.kubelet(t, node)), sending{path: "/bundles/" + id}) == 404
		})
		if !r.has(otherID, other) {
			t.Error("a listed file was removed")
		}
	}
}

// Without a list, or with one that cannot be read, nothing is removed.
func TestNoList(t *testing.T) {
	path, data, id := sample(t, 1)
	r := start(t, nil, path)
	old := time.Now().Add(-2 * unlistedFor)
	if err := os.Chtimes(filepath.Join(r.settings.Directory, id), old, old); err != nil {
		t.Fatal(err)
	}
	for name, data := range map[string]map[string]string{
		"none": nil, "empty": {}, "no text": {config.RegistryKey: ""}, "cut": {config.RegistryKey: "apiVersion: airlift/v1\nkind: Regis"},
		"another version": {config.RegistryKey: "apiVersion: airlift/v2\nkind: Registry\nbundles: []\n"},
		"no bundles":      {config.RegistryKey: "apiVersion: airlift/v1\nkind: Registry\nbundles: []\n"},
		"no key bundles":  {config.RegistryKey: "apiVersion: airlift/v1\nkind: Registry\n"},
		"a wrong ID":      {config.RegistryKey: "apiVersion: airlift/v1\nkind: Registry\nbundles: [{id: " + strings.Repeat("a", 64) + ", size: 5}]\n"},
	} {
		r.useConfigMap(data)
		r.copies.work(t.Context())
		if _, err := os.Stat(filepath.Join(r.settings.Directory, id)); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if !r.has(id, data) {
		t.Error("it is not served")
	}
	r.useConfigMap(map[string]string{config.RegistryKey: "apiVersion: airlift/v1\nkind: Registry\ndisabled: true\nbundles: []\n"})
	eventually(t, func() bool { return len(r.state().Bundles) == 0 })
}

// A damaged file is repaired from another control plane, in place.
func TestRepair(t *testing.T) {
	path, data, id := sample(t, 1)
	rigs := startCluster(t, 2, map[int][]string{0: {path}, 1: {path}})
	setList(rigs, describe(t, path))
	file := filepath.Join(rigs[0].settings.Directory, id)
	for _, at := range []int64{50, int64(len(data)) / 2, int64(len(data)) - 300, int64(len(data)) - 100} {
		flip(t, file, at)
		// A new process: it has compared nothing.
		r := rigs[0]
		r.stop()
		servers := r.copies.servers
		r.service = newService(r.settings, r.api, r.images, r.log)
		r.run(t)
		r.copies.useServers(servers)
		eventually(t, func() bool { // a request finds the damage, when the server has the file in its catalog
			_, _, _ = r.send(t, r.client(t, r.kubelet(t, node)), sending{path: "/bundles/" + id})
			return r.has(id, data)
		})
		if resp, body, err := r.send(t, r.client(t, r.kubelet(t, node)), sending{path: "/bundles/" + id}); err != nil || !bytes.Equal(body, data) {
			t.Errorf("damaged at %d: after the repair: %v, %v", at, resp, err)
		}
	}
}

// Images that could not be read, because the disk was full or a file was damaged, are served later without a restart.
func TestImagesAreReadAgain(t *testing.T) {
	path, _, id := sample(t, 1)
	r := start(t, nil, path)
	times := func() int {
		r.images.mu.Lock()
		defer r.images.mu.Unlock()
		return r.images.times
	}
	eventually(t, func() bool { return times() == 1 })
	r.catalog.isDamaged(r.catalog.byID()[id], errors.New("damaged"))
	r.catalog.repaired(id)
	eventually(t, func() bool { return times() == 2 })
	synctest.Test(t, func(t *testing.T) {
		images := &fakeImages{err: errors.New("the disk is full")}
		c := newCatalog(store.New(t.TempDir()), images, r.log, func() {})
		ctx, stop := context.WithCancel(t.Context())
		defer stop()
		go func() { _ = c.publish(ctx) }()
		c.refresh()
		time.Sleep(publishAgain + time.Second)
		synctest.Wait()
		images.mu.Lock()
		defer images.mu.Unlock()
		if images.times != 2 {
			t.Errorf("read %d times", images.times)
		}
	})
}

// A control plane that has another file, or bytes that do not match, is passed over; if no other has the file, nothing is
// placed.
func TestControlPlaneThatSendsAnotherFile(t *testing.T) {
	path, data, id := sample(t, 1)
	_, wrong, _ := sample(t, 2)
	for name, content := range map[string][]byte{"another file": wrong, "a damaged byte": damaged(data, len(data)/2), "another launcher": damaged(data, 5), "other digests": damaged(data, len(data)-300)} {
		t.Run(name, func(t *testing.T) {
			rigs := startCluster(t, 3, map[int][]string{})
			target, good := rigs[0], rigs[2]
			evil := serveBytes(t, target.authority, id, content)
			target.copies.useServers([]netip.AddrPort{evil})
			target.api.change(func() {
				target.api.list = &config.EmbeddedRegistry{Used: true, Bundles: []config.KeptBundle{describe(t, path)}}
			})
			eventually(t, func() bool { return target.state().Problems[id] != "" })
			if target.state().Serves(id) {
				t.Error("it is served")
			}
			if text := target.state().Problems[id]; !strings.Contains(text, evil.String()) {
				t.Errorf("the error does not name the control plane: %s", text)
			}
			place(t, good.copies.store, path)
			good.catalog.refresh()
			target.copies.useServers([]netip.AddrPort{evil, netip.MustParseAddrPort(good.connections.Addr().String())})
			eventually(t, func() bool { return target.has(id, data) && target.state().Problems[id] == "" })
		})
	}
}

func damaged(data []byte, at int) []byte {
	data = bytes.Clone(data)
	data[at] ^= 1
	return data
}

// The service leaves out its own addresses, and uses the port of the registry.
func TestPeers(t *testing.T) {
	r := start(t, nil)
	r.usePeers([]netip.AddrPort{netip.MustParseAddrPort("127.0.0.1:6443"), netip.MustParseAddrPort("192.0.2.1:6443"), netip.MustParseAddrPort("[2001:db8::1]:6443")})
	if got := fmt.Sprint(r.state().Peers); got != "[192.0.2.1:7444 [2001:db8::1]:7444]" {
		t.Errorf("%s", got)
	}
}

// With only IPv6, a control plane copies a file from another one, and both serve it with a certificate for that address.
func TestOnlyIPv6(t *testing.T) {
	path, data, id := sample(t, 1)
	rigs := startClusterAt(t, "::1", 2, map[int][]string{0: {path}})
	setList(rigs, describe(t, path))
	eventually(t, func() bool { return rigs[1].has(id, data) && rigs[1].state().Serves(id) })
	for _, r := range rigs {
		if !strings.HasPrefix(r.url, "https://[::1]:") || !strings.HasPrefix(r.state().Peers[0], "[::1]:") {
			t.Errorf("%s, peers %v", r.url, r.state().Peers)
		}
		resp, body, err := r.send(t, r.client(t, r.kubelet(t, node)), sending{path: "/bundles/" + id})
		if err != nil || resp.StatusCode != 200 || !bytes.Equal(body, data) {
			t.Errorf("%v with %d bytes, %v", resp, len(body), err)
		}
	}
}

// A run that ends during a copy ends, and the next one continues.
func TestCopyIsCancelled(t *testing.T) {
	path, data, id := sample(t, 1)
	rigs := startCluster(t, 2, map[int][]string{0: {path}})
	target := rigs[1]
	servers := target.copies.servers
	target.stop()
	ctx, cancel := context.WithCancel(t.Context())
	target.service = newService(target.settings, target.api, target.images, target.log)
	open := target.copies.open
	target.copies.open = func(_ context.Context, servers []netip.AddrPort, b config.KeptBundle) (*bundle.File, func(), error) {
		f, close, err := open(ctx, servers, b)
		cancel()
		return f, close, err
	}
	target.run(t)
	target.copies.useServers(servers)
	setList(rigs, describe(t, path))
	eventually(t, func() bool { return target.state().Problems[id] != "" })
	target.stop()
	target.service = newService(target.settings, target.api, target.images, target.log)
	target.run(t)
	target.copies.useServers(servers)
	eventually(t, func() bool { return target.has(id, data) })
}
