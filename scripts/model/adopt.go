package model

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"airlift/installer/flow/adopt"
	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/payload"
	"airlift/installer/workflow"
)

// Commands for nodes that another tool made.
const (
	// otherTool makes the node one of another tool: what Airlift wrote is there, and nothing that names Airlift.
	otherTool       = "another tool makes the node"
	adoptNode       = "adopt"
	disownNode      = "disown"
	resetRemoveNode = "reset --remove-node"
)

// commandAirlift is the command of a node.
const commandAirlift = host.CommandPath

// kubeadmCrictl is crictl's configuration on a node of another tool.
const kubeadmCrictl = "runtime-endpoint: unix:///run/containerd/containerd.sock\n"

// loseAirlift removes what names Airlift from a host and from its node.
func (s *Site) loseAirlift(h *Host) error {
	h.foreign, h.asAdopted = true, nil
	units, err := filepath.Glob(filepath.Join(h.Root, "etc/systemd/system/airlift-*"))
	if err != nil {
		return err
	}
	for _, file := range append(units, filepath.Join(h.Root, ledger.StateDir), filepath.Join(h.Root, host.CommandPath)) {
		err = errors.Join(err, h.stop(filepath.Base(file)), os.RemoveAll(file))
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if c := s.api(); c != nil {
		for key := range c.data {
			if strings.HasPrefix(key, "configmaps/kube-system/airlift-") {
				c.remove(key)
			}
		}
		c.update("nodes/"+h.Name, func(o map[string]any) {
			metadata, _ := o["metadata"].(map[string]any)
			annotations, _ := metadata["annotations"].(map[string]any)
			for name := range annotations {
				if strings.HasPrefix(name, "airlift.dev/") {
					delete(annotations, name)
				}
			}
		})
	}
	return errors.Join(err, h.put("etc/crictl.yaml", kubeadmCrictl, 0o644))
}

// adopt takes over the node.
func (r *run) adopt(b *payload.Bundle) (string, error) {
	h, unlock, err := r.open("adopt")
	if err != nil {
		return "", err
	}
	defer unlock()
	was := h.Records().Adopted() != nil
	before, files := r.changes, r.host.kept()
	var out bytes.Buffer
	found, err := adopt.New(adopt.Options{Target: b.Manifest.KubernetesVersion}, h, &workflow.Console{Out: &out, Results: io.Discard}).Run(r.ctx)
	if !was && r.host.isAdopted() {
		r.host.asAdopted = files
	}
	if err != nil {
		if !r.disturbed {
			err = r.refused(before, err)
		}
		return out.String(), err
	}
	if !found.Adopted && r.host.foreign {
		r.host.world.violate("adopt has not adopted the node: %s", found.Text())
	}
	is := r.host.kept()
	if !r.host.exists(host.CommandPath) {
		r.host.world.violate("adopt has not installed the command airlift")
	}
	delete(is, host.CommandPath)
	delete(files, host.CommandPath)
	if !sameFiles(files, is) {
		r.host.world.violate("adopt changes %v", differing(files, is))
	}
	return out.String(), nil
}

// disown ends the adoption of the node.
func (r *run) disown() (string, error) {
	return r.changing(disownNode, "", func(h *host.Host, c *workflow.Console) error {
		before := r.changes
		if err := adopt.CheckDisown(h); err != nil {
			return r.refused(before, err)
		}
		if !h.Records().Used() {
			return nil
		}
		if _, err := adopt.DescribeDisown(h); err != nil {
			return err
		}
		return adopt.Disown(r.ctx, h, c)
	})
}

// isAdopted reports whether the ledger of a host has an adoption.
func (h *Host) isAdopted() bool {
	var document ledger.Document
	return json.Unmarshal([]byte(h.read(ledger.Path)), &document) == nil && document.Adopted != nil
}

// kept returns the files of a host that the reset of an adopted node gives back: all but what the components write and what is renewed.
func (h *Host) kept() map[string]string {
	list := map[string]string{}
	for name, sum := range h.files() {
		switch {
		case sum == "directory", strings.HasPrefix(name, "/etc/kubernetes/pki/"), strings.HasPrefix(name, "/etc/kubernetes/") && strings.HasSuffix(name, ".conf"):
		case strings.HasPrefix(name, "/etc/"), strings.HasPrefix(name, "/usr/"), strings.HasPrefix(name, "/opt/"), strings.HasPrefix(name, "/var/lib/kubelet/") && !strings.HasPrefix(name, "/var/lib/kubelet/p"):
			list[name] = sum
		}
	}
	return list
}

// differing returns the names of files that differ.
func differing(before, after map[string]string) (list []string) {
	for name, sum := range after {
		if before[name] != sum {
			list = append(list, name)
		}
	}
	for name := range before {
		if after[name] == "" {
			list = append(list, name+" is gone")
		}
	}
	return list
}

func sameFiles(before, after map[string]string) bool { return len(differing(before, after)) == 0 }

// asBeforeAdoption fails if a host has not what it had when it was adopted.
func (s *Site) asBeforeAdoption(h *Host) error {
	if list := differing(h.asAdopted, h.kept()); len(list) > 0 {
		return fmt.Errorf("reset has not given back what was there when the node was adopted: %v", list)
	}
	if !h.isAdopted() {
		return errors.New("reset has ended the adoption")
	}
	return s.running(h, false)
}

// notAdopted fails if disown has left something, or if the node does not work any more.
func (s *Site) notAdopted(h *Host) error {
	if h.exists(ledger.Path) {
		return errors.New("disown has left the ledger")
	}
	return s.running(h, false)
}

// putProcess writes what the kernel has about a process.
func (h *Host) putProcess(pid int, exe string, args ...string) error {
	dir := fmt.Sprintf("proc/%d", pid)
	if err := h.put(dir+"/cmdline", strings.Join(append([]string{exe}, args...), "\x00")+"\x00", 0o444); err != nil {
		return err
	}
	link := filepath.Join(h.Root, dir, "exe")
	if err := os.Remove(link); err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	return os.Symlink(exe, link)
}
