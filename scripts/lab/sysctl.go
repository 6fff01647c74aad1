package lab

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// sharedSysctls are kernel parameters that the hosts share with this machine and that the
// kubelet sets (k8s.io/kubernetes/pkg/kubelet/cm, setupKernelTunables) or this package raises.
// They are restored with the removal of the last lab: the owner does not expect this machine to
// reboot on an oops.
var sharedSysctls = []string{
	"fs/inotify/max_user_instances",
	"kernel/keys/root_maxbytes",
	"kernel/keys/root_maxkeys",
	"kernel/panic",
	"kernel/panic_on_oops",
	"vm/overcommit_memory",
	"vm/panic_on_oom",
}

// inotifyInstances is enough for several hosts with many pods. For the kernel all of them are
// one user, and its default of 128 causes "too many open files"
// (https://kind.sigs.k8s.io/docs/user/known-issues/).
const inotifyInstances = 8192

func sysctlFile() string { return filepath.Join(stateDir, "sysctl.json") }

// borrowSysctls saves this machine's parameters, unless an earlier lab did, and raises the
// parameters that the hosts need.
func borrowSysctls() error {
	if _, err := os.Stat(sysctlFile()); err == nil {
		return nil
	}
	saved := map[string]string{}
	for _, key := range sharedSysctls {
		value, err := os.ReadFile("/proc/sys/" + key)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return fmt.Errorf("reading kernel parameters: %w", err)
		}
		saved[key] = strings.TrimSpace(string(value))
	}
	data, err := json.Marshal(saved)
	if err == nil {
		err = os.WriteFile(sysctlFile(), data, 0o600)
	}
	if err != nil {
		return fmt.Errorf("saving kernel parameters: %w", err)
	}
	const key = "fs/inotify/max_user_instances"
	if now, err := strconv.Atoi(saved[key]); err == nil && now < inotifyInstances {
		return writeSysctl(key, strconv.Itoa(inotifyInstances))
	}
	return nil
}

// returnSysctls restores the parameters that borrowSysctls saved.
func returnSysctls() error {
	data, err := os.ReadFile(sysctlFile())
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	saved := map[string]string{}
	if err == nil {
		err = json.Unmarshal(data, &saved)
	}
	if err != nil {
		return fmt.Errorf("reading saved kernel parameters: %w", err)
	}
	for key, value := range saved {
		if err := writeSysctl(key, value); err != nil {
			return err
		}
	}
	return os.Remove(sysctlFile())
}

func writeSysctl(key, value string) error {
	if err := os.WriteFile("/proc/sys/"+key, []byte(value), 0o644); err != nil {
		return fmt.Errorf("setting %s to %s: %w", key, value, err)
	}
	return nil
}
