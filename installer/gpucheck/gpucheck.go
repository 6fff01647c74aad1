// Package gpucheck finds what a host with GPUs does not have yet so that containers can use them. It only reads files: a host whose GPUs
// no container uses needs nothing of it, so nothing is an error.
package gpucheck

import (
	"fmt"
	"io/fs"
	"os"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"airlift/installer/host/detection"
)

// Name is the name of the check.
const Name = "GPU"

// A Problem is something that a GPU needs.
type Problem struct {
	Message, Fix string
	// Minor is set if the host probably has the GPU only for its screen.
	Minor bool
}

// A vendor is a vendor of GPUs whose drivers are known.
type vendor struct {
	name string
	// id is the vendor's in PCI (include/linux/pci_ids.h of Linux: PCI_VENDOR_ID_NVIDIA, _ATI, _INTEL).
	id string
	// drivers are modules of the kernel with which containers use its GPUs. The first one is named in messages.
	drivers []string
	// file matches the file of such a module in /lib/modules. NVIDIA's own has several names, and the kernel has other modules with
	// its name (nvidiafb), but only the driver has nvidia-uvm, which CUDA needs.
	file *regexp.Regexp
	// screen is set if processors have GPUs of this vendor.
	screen bool
}

var vendors = []vendor{
	{"NVIDIA", "0x10de", []string{"nvidia"}, regexp.MustCompile(`/nvidia(-[^/]+)?-uvm\.ko`), false},
	{"AMD", "0x1002", []string{"amdgpu"}, regexp.MustCompile(`/amdgpu\.ko`), true},
	{"Intel", "0x8086", []string{"i915", "xe"}, regexp.MustCompile(`/(i915|xe)\.ko`), true},
}

// display is the beginning of the class of a GPU in PCI (PCI_BASE_CLASS_DISPLAY): VGA, 3D and other controllers.
const display = "0x03"

// passed is the driver of a device that belongs to a virtual machine.
const passed = "vfio-pci"

// OnHost returns what the GPUs of a host need, whose files are below a directory.
func OnHost(root string) []Problem {
	kernel, err := detection.Kernel()
	if err != nil {
		return nil // the check SystemVerification reports it
	}
	return Problems(os.DirFS(root), kernel)
}

// Problems returns what the GPUs of a host need. files are the host's, kernel is the version of the running one.
func Problems(files fs.FS, kernel string) (list []Problem) {
	for _, v := range vendors {
		gpus, unbound := v.gpus(files)
		if len(gpus) == 0 {
			continue
		}
		found := v.kernels(files, kernel)
		if len(unbound) > 0 {
			found = v.unbound(files, kernel, unbound)
		} else if v.name == "NVIDIA" {
			found = append(found, nvidia(files)...)
		}
		for i := range found {
			found[i].Minor = v.screen
		}
		list = append(list, found...)
	}
	return list
}

// gpus returns the addresses of the vendor's GPUs in PCI, and which of them no driver for containers has.
func (v vendor) gpus(files fs.FS) (all, unbound []string) {
	devices, _ := fs.Glob(files, "sys/bus/pci/devices/*") // the pattern is valid
	for _, device := range devices {
		driver, _ := fs.ReadLink(files, device+"/driver") // none without a driver
		if read(files, device+"/vendor") != v.id || !strings.HasPrefix(read(files, device+"/class"), display) || path.Base(driver) == passed {
			continue
		}
		all = append(all, path.Base(device))
		if !slices.Contains(v.drivers, path.Base(driver)) {
			unbound = append(unbound, path.Base(device))
		}
	}
	return all, unbound
}

// unbound explains why GPUs have no driver.
func (v vendor) unbound(files fs.FS, kernel string, gpus []string) []Problem {
	const fix = "no action needed if no container uses it; otherwise "
	p := Problem{Message: fmt.Sprintf("the %s GPU at %s has no driver for containers", v.name, strings.Join(gpus, ", "))}
	has, others := v.installed(files, kernel)
	switch {
	case has:
		p.Message += fmt.Sprintf(": the module %s of the kernel %s is not loaded, or another driver has the GPU", v.drivers[0], kernel)
		p.Fix = fmt.Sprintf("%smodprobe %s; journalctl -k | grep -i %s; lspci -k", fix, v.drivers[0], v.drivers[0])
	case len(others) > 0:
		p.Message += fmt.Sprintf(": the module %s is installed for the kernel %s, and not for the running %s", v.drivers[0], strings.Join(others, ", "), kernel)
		p.Fix = fmt.Sprintf("%sinstall the driver's package for %s, or boot %s", fix, kernel, others[len(others)-1])
	default:
		p.Message += fmt.Sprintf(": no module %s is installed for the kernel %s", v.drivers[0], kernel)
		p.Fix = fmt.Sprintf("%sinstall the driver's package for %s: ./install docs gpu", fix, kernel)
	}
	return []Problem{p}
}

// kernels names newer kernels with which GPUs that work would have no driver.
func (v vendor) kernels(files fs.FS, kernel string) []Problem {
	if has, _ := v.installed(files, kernel); !has {
		return nil // the modules of the host are elsewhere
	}
	var without []string
	for _, other := range kernels(files) {
		if has, _ := v.installed(files, other); !has && slices.Compare(numbers(other), numbers(kernel)) > 0 {
			without = append(without, other)
		}
	}
	if len(without) == 0 {
		return nil
	}
	return []Problem{{
		Message: fmt.Sprintf("the module %s is installed for the running kernel %s, and not for the newer %s: after the next boot, the %s GPUs may have no driver", v.drivers[0], kernel, strings.Join(without, ", "), v.name),
		Fix:     fmt.Sprintf("install the driver's package for %s before the host boots, or keep the kernel: ./install docs gpu", without[len(without)-1]),
	}}
}

// nvidia returns what GPUs need whose driver is loaded.
func nvidia(files fs.FS) (list []Problem) {
	if exists(files, "proc/driver/nvidia/version") && !exists(files, "dev/nvidia0") {
		list = append(list, Problem{
			Message: "the driver nvidia is loaded, and there is no /dev/nvidia0: containers get no GPU",
			Fix:     "nvidia-modprobe -c 0 -u; or nvidia-smi",
		})
	}
	if !hasCDI(files) {
		list = append(list, Problem{
			Message: "no file in /etc/cdi or /var/run/cdi has the kind nvidia.com/gpu: pods get GPUs only by a runtime class that does not need it",
			Fix:     "nvidia-ctk cdi generate --output=/etc/cdi/nvidia.yaml; see ./install docs gpu",
		})
	}
	return list
}

// hasCDI reports whether a file in the directories of containerd's CRI describes GPUs of NVIDIA.
func hasCDI(files fs.FS) bool {
	for _, dir := range []string{"etc/cdi", "var/run/cdi"} { // cdi_spec_dirs of containerd: internal/cri/config/config_unix.go
		found, _ := fs.Glob(files, dir+"/*") // the pattern is valid
		for _, name := range found {
			if ext := path.Ext(name); ext != ".yaml" && ext != ".json" { // others are not read, such as a copy of an editor
				continue
			}
			var spec struct{ Kind string }
			if yaml.Unmarshal([]byte(read(files, name)), &spec) == nil && spec.Kind == "nvidia.com/gpu" {
				return true
			}
		}
	}
	return false
}

// installed reports whether a kernel has a driver of the vendor, and which other kernels have one, the oldest first.
func (v vendor) installed(files fs.FS, kernel string) (has bool, others []string) {
	for _, k := range kernels(files) {
		dir := "lib/modules/" + k
		switch found := v.file.MatchString(read(files, dir+"/modules.dep") + "\n" + read(files, dir+"/modules.builtin")); {
		case found && k == kernel:
			has = true
		case found:
			others = append(others, k)
		}
	}
	return has, others
}

// kernels are the versions of the installed kernels, the oldest first.
func kernels(files fs.FS) (list []string) {
	found, _ := fs.Glob(files, "lib/modules/*/modules.dep") // the pattern is valid
	for _, name := range found {
		list = append(list, path.Base(path.Dir(name)))
	}
	slices.SortStableFunc(list, func(a, b string) int { return slices.Compare(numbers(a), numbers(b)) })
	return list
}

var digits = regexp.MustCompile(`[0-9]+`)

// numbers returns the numbers in the version of a kernel: 6, 12, 48, 13, 64 for "6.12.48+deb13-amd64".
func numbers(version string) (list []int) {
	for _, d := range digits.FindAllString(version, -1) {
		n, _ := strconv.Atoi(d) // a number that is too large counts as the largest one
		list = append(list, n)
	}
	return list
}

// read returns a file without its last newline, "" if it cannot be read.
func read(files fs.FS, name string) string {
	data, _ := fs.ReadFile(files, name)
	return strings.TrimSpace(string(data))
}

func exists(files fs.FS, name string) bool {
	_, err := fs.Stat(files, name)
	return err == nil
}
