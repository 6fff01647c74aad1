package gpucheck

import (
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"
)

// Kernels of a host, the oldest first.
const (
	older   = "6.12.41+deb13-amd64"
	running = "6.12.48+deb13-amd64"
	newer   = "6.12.107+deb13-amd64"
)

// Lines of modules.dep: what Debian's and NVIDIA's packages install, and modules of the kernel that are no driver for containers.
const (
	others  = "kernel/drivers/video/fbdev/nvidia/nvidiafb.ko.xz: kernel/drivers/i2c/algos/i2c-algo-bit.ko.xz\nkernel/drivers/gpu/drm/nouveau/nouveau.ko.xz:\nkernel/drivers/platform/x86/nvidia-wmi-ec-backlight.ko.xz:\n"
	dkms    = "updates/dkms/nvidia.ko.xz:\nupdates/dkms/nvidia-uvm.ko.xz: updates/dkms/nvidia.ko.xz\n"
	debians = "updates/dkms/nvidia-current.ko.xz:\nupdates/dkms/nvidia-current-uvm.ko.xz: updates/dkms/nvidia-current.ko.xz\n"
	amds    = "kernel/drivers/gpu/drm/amd/amdgpu/amdgpu.ko.zst:\n"
)

// A tree is the files of a host; a value that begins with -> is a link.
type tree map[string]string

func (t tree) fs() fstest.MapFS {
	files := fstest.MapFS{}
	for name, text := range t {
		f := &fstest.MapFile{Data: []byte(text)}
		if to, ok := strings.CutPrefix(text, "->"); ok {
			f = &fstest.MapFile{Data: []byte(to), Mode: fs.ModeSymlink}
		}
		files[name] = f
	}
	return files
}

// device returns the files of a device in PCI.
func device(address, vendor, class, driver string) tree {
	dir := "sys/bus/pci/devices/" + address + "/"
	t := tree{dir + "vendor": vendor + "\n", dir + "class": class + "\n"}
	if driver != "" {
		t[dir+"driver"] = "->../../../../bus/pci/drivers/" + driver
	}
	return t
}

func modules(kernel, text string) tree {
	return tree{"lib/modules/" + kernel + "/modules.dep": others + text}
}

func TestProblems(t *testing.T) {
	const at, second = "0000:3b:00.0", "0000:af:00.0"
	tesla := func(driver string) tree { return device(at, "0x10de", "0x030200", driver) }
	driver := tree{"proc/driver/nvidia/version": "NVRM version\n", "dev/nvidia0": ""}
	cdi := tree{"etc/cdi/nvidia.yaml": "cdiVersion: 0.5.0\nkind: nvidia.com/gpu\ndevices: []\n"}
	for name, test := range map[string]struct {
		host []tree
		want []string // a part of each message and fix, and "minor"
	}{
		"no GPU":                            {[]tree{device("0000:00:1f.0", "0x8086", "0x060100", ""), device("0000:03:00.0", "0x1a03", "0x030000", "ast"), device(second, "0x10de", "0x040300", "")}, nil},
		"everything is there":               {[]tree{tesla("nvidia"), modules(running, dkms), driver, cdi}, nil},
		"no driver":                         {[]tree{tesla(""), device(second, "0x10de", "0x030200", ""), modules(running, "")}, []string{"the NVIDIA GPU at 0000:3b:00.0, 0000:af:00.0 has no driver for containers: no module nvidia is installed for the kernel " + running}},
		"no modules at all":                 {[]tree{tesla("")}, []string{"no module nvidia is installed"}},
		"the kernel's own driver":           {[]tree{tesla("nouveau"), modules(running, dkms)}, []string{"is not loaded, or another driver has the GPU|modprobe nvidia"}},
		"Debian's names":                    {[]tree{tesla(""), modules(running, debians)}, []string{"the module nvidia of the kernel " + running + " is not loaded"}},
		"after an update of the kernel":     {[]tree{tesla(""), modules(older, debians), modules(running, "")}, []string{"installed for the kernel " + older + ", and not for the running " + running + "|or boot " + older}},
		"before the boot of a newer kernel": {[]tree{tesla("nvidia"), modules(older, ""), modules(running, dkms), modules(newer, ""), driver, cdi}, []string{"installed for the running kernel " + running + ", and not for the newer " + newer + ":|before the host boots"}},
		"a newer kernel with the driver":    {[]tree{tesla("nvidia"), modules(running, dkms), modules(newer, dkms), driver, cdi}, nil},
		"a container that is the host":      {[]tree{tesla("nvidia"), modules(newer, ""), driver, cdi}, nil},
		"no device":                         {[]tree{tesla("nvidia"), modules(running, dkms), {"proc/driver/nvidia/version": "x"}, cdi}, []string{"no /dev/nvidia0|nvidia-modprobe"}},
		"no CDI":                            {[]tree{tesla("nvidia"), modules(running, dkms), driver, {"etc/cdi/other.yaml": "kind: example.com/nic\n# kind: nvidia.com/gpu\n"}}, []string{"the kind nvidia.com/gpu|nvidia-ctk cdi generate"}},
		"CDI that is not read":              {[]tree{tesla("nvidia"), modules(running, dkms), driver, {"etc/cdi/nvidia.yml": "kind: nvidia.com/gpu\n", "etc/cdi/nvidia.yaml.before": "kind: nvidia.com/gpu\n"}}, []string{"the kind nvidia.com/gpu|nvidia-ctk cdi generate"}},
		"CDI in JSON":                       {[]tree{tesla("nvidia"), modules(running, dkms), driver, {"var/run/cdi/a.json": `{"cdiVersion":"0.5.0","kind":"nvidia.com/gpu"}`}}, nil},
		"one of two":                        {[]tree{tesla("nvidia"), device(second, "0x10de", "0x030200", ""), modules(running, dkms), driver}, []string{"the NVIDIA GPU at " + second + " has no driver"}},
		"of a virtual machine":              {[]tree{tesla("vfio-pci")}, nil},
		"AMD":                               {[]tree{device(at, "0x1002", "0x038000", ""), modules(running, amds)}, []string{"minor|the module amdgpu of the kernel"}},
		"Intel, built in":                   {[]tree{device(at, "0x8086", "0x030000", ""), modules(running, ""), {"lib/modules/" + running + "/modules.builtin": "kernel/drivers/gpu/drm/i915/i915.ko\n"}}, []string{"minor|the module i915 of the kernel"}},
		"Intel":                             {[]tree{device(at, "0x8086", "0x030000", "xe")}, nil},
	} {
		t.Run(name, func(t *testing.T) {
			all := tree{}
			for _, part := range test.host {
				for file, text := range part {
					all[file] = text
				}
			}
			found := Problems(all.fs(), running)
			if len(found) != len(test.want) {
				t.Fatalf("%+v", found)
			}
			for i, p := range found {
				text := p.Message + "|" + p.Fix
				if p.Minor {
					text += "|minor"
				}
				for _, want := range strings.Split(test.want[i], "|") {
					if !strings.Contains(text, want) {
						t.Errorf("%q is not in %q", want, text)
					}
				}
				if p.Minor != strings.Contains(test.want[i], "minor") || p.Fix == "" {
					t.Errorf("%+v", p)
				}
			}
		})
	}
}

// TestOnHost reads files as sysfs has them: the directories of devices, and the drivers, are links.
func TestOnHost(t *testing.T) {
	root := t.TempDir()
	dir := filepath.Join(root, "sys/devices/pci0000:3a/0000:3b:00.0")
	for _, d := range []string{dir, filepath.Join(root, "sys/bus/pci/devices"), filepath.Join(root, "sys/bus/pci/drivers/nouveau")} {
		if err := os.MkdirAll(d, 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for name, text := range map[string]string{"vendor": "0x10de\n", "class": "0x030200\n"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	link := func(to, name string) {
		if err := os.Symlink(to, name); err != nil {
			t.Fatal(err)
		}
	}
	link("../../../devices/pci0000:3a/0000:3b:00.0", filepath.Join(root, "sys/bus/pci/devices/0000:3b:00.0"))
	if found := OnHost(root); len(found) != 1 || !strings.Contains(found[0].Message, "0000:3b:00.0") {
		t.Errorf("%+v", found)
	}
	link("../../../bus/pci/drivers/nvidia", filepath.Join(dir, "driver"))
	if found := OnHost(root); len(found) != 1 || !strings.Contains(found[0].Fix, "nvidia-ctk") {
		t.Errorf("%+v", found)
	}
}
