package model

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/coreos/go-systemd/v22/dbus"
	godbus "github.com/godbus/dbus/v5"

	"airlift/installer/multihost/seed"
)

// A unit is a systemd unit of a host. Only containerd and the kubelet do something.
type unit struct {
	enabled, active bool
	since           time.Time
	invocation      byte
}

// systemd is a connection of a command to the systemd of a host.
type systemd struct {
	host *Host
	run  *run
}

func (s systemd) Close() {}

func (s systemd) ReloadContext(context.Context) error { return s.run.effect("systemd reload") }

// unitFile returns the path of the file of a unit, "" if it has none.
func (h *Host) unitFile(name string) string {
	for _, dir := range []string{"etc/systemd/system", "usr/lib/systemd/system", "usr/local/lib/systemd/system"} {
		path := filepath.Join(h.Root, dir, name)
		if _, err := os.Stat(path); err == nil {
			return path
		}
	}
	return ""
}

func (h *Host) unit(name string) *unit {
	if h.units[name] == nil {
		h.units[name] = &unit{}
	}
	return h.units[name]
}

func (s systemd) GetUnitPropertyContext(_ context.Context, name, property string) (*dbus.Property, error) {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	if property != "UnitFileState" {
		return nil, fmt.Errorf("the model has no property %s", property)
	}
	state := "disabled"
	if s.host.unit(name).enabled {
		state = "enabled"
	}
	return &dbus.Property{Name: property, Value: godbus.MakeVariant(state)}, nil
}

func (s systemd) GetAllPropertiesContext(_ context.Context, name string) (map[string]any, error) {
	s.host.world.mu.Lock()
	defer s.host.world.mu.Unlock()
	u, file := s.host.unit(name), s.host.unitFile(name)
	p := map[string]any{"LoadState": "not-found", "ActiveState": "inactive", "SubState": "dead", "FragmentPath": strings.TrimPrefix(file, s.host.Root), "Type": "simple", "Result": "success", "NRestarts": uint32(0), "InvocationID": []byte{u.invocation}}
	if file != "" {
		p["LoadState"] = "loaded"
	}
	if u.enabled {
		p["UnitFileState"] = "enabled"
	}
	dropIns, err := filepath.Glob(filepath.Join(s.host.Root, "etc/systemd/system", name+".d", "*.conf"))
	for i, file := range dropIns {
		dropIns[i] = strings.TrimPrefix(file, s.host.Root)
	}
	p["DropInPaths"] = dropIns
	if u.active {
		pid := map[string]uint32{"kubelet.service": kubeletPID, "containerd.service": containerdPID}[name]
		p["ActiveState"], p["SubState"], p["MainPID"], p["ActiveEnterTimestamp"] = "active", "running", max(pid, 1), uint64(u.since.UnixMicro())
	}
	return p, err
}

// The processes of units.
const kubeletPID, containerdPID = 700, 600

func (systemd) ListJobsContext(context.Context) ([]dbus.JobStatus, error) { return nil, nil }

func (s systemd) job(name, verb string, done chan<- string, do func() error) (int, error) {
	if err := s.run.effect("systemd " + verb + " " + name); err != nil {
		return 0, err
	}
	if verb != "stop" && s.host.unitFile(name) == "" {
		return 0, fmt.Errorf("unit %s not found", name)
	}
	result := "done"
	if err := do(); err != nil {
		result = "failed"
	}
	if done != nil {
		done <- result
	}
	return 1, nil
}

func (s systemd) StartUnitContext(_ context.Context, name, _ string, done chan<- string) (int, error) {
	return s.job(name, "start", done, func() error { return s.host.start(name) })
}

func (s systemd) RestartUnitContext(_ context.Context, name, _ string, done chan<- string) (int, error) {
	return s.job(name, "restart", done, func() error { return errors.Join(s.host.stop(name), s.host.start(name)) })
}

func (s systemd) StopUnitContext(_ context.Context, name, _ string, done chan<- string) (int, error) {
	return s.job(name, "stop", done, func() error { return s.host.stop(name) })
}

func (s systemd) EnableUnitFilesContext(_ context.Context, names []string, _, _ bool) (bool, []dbus.EnableUnitFileChange, error) {
	return true, nil, s.enable(names, true)
}

func (s systemd) DisableUnitFilesContext(_ context.Context, names []string, _ bool) ([]dbus.DisableUnitFileChange, error) {
	return nil, s.enable(names, false)
}

func (s systemd) enable(names []string, yes bool) error {
	for _, name := range names {
		if err := s.run.effect("systemd enable " + name); err != nil {
			return err
		}
		if yes && s.host.unitFile(name) == "" {
			return fmt.Errorf("unit file %s does not exist", name)
		}
		s.host.world.mu.Lock()
		s.host.unit(name).enabled = yes
		s.host.world.mu.Unlock()
	}
	return nil
}

func (s systemd) ResetFailedUnitContext(context.Context, string) error { return nil }

// start starts a unit.
func (h *Host) start(name string) error {
	h.world.mu.Lock()
	defer h.world.mu.Unlock()
	u := h.unit(name)
	if u.active {
		return nil
	}
	switch name {
	case "containerd.service":
		if err := h.startContainerd(); err != nil {
			return err
		}
	case "kubelet.service":
		if err := h.startKubelet(); err != nil {
			return err
		}
	}
	if name == seed.Unit {
		h.startSeed()
	}
	h.world.note("%s: started %s", h.Name, name)
	u.active, u.since, u.invocation = true, time.Now(), u.invocation+1
	return nil
}

// stop stops a unit.
func (h *Host) stop(name string) error {
	h.world.mu.Lock()
	u := h.unit(name)
	var end func()
	if u.active {
		switch name {
		case "containerd.service":
			end = h.stopContainerd
		case "kubelet.service":
			end = h.stopKubelet
		case seed.Unit:
			end = h.stopSeed
		}
		h.world.note("%s: stopped %s", h.Name, name)
	}
	u.active = false
	h.world.mu.Unlock()
	if end != nil {
		end()
	}
	return nil
}
