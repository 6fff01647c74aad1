package service

import (
	"net"
	"os"
	"os/exec"
	"syscall"
	"testing"

	"github.com/vishvananda/netlink"
)

// TestMain runs the tests of root in namespaces of their own: /etc, /run and /var/lib are empty there, and the network
// has the interface eth0 with the subnet 10.99.0.0/24.
func TestMain(m *testing.M) {
	const inside = "AIRLIFT_ENDPOINT_INSIDE"
	switch {
	case os.Geteuid() != 0:
		os.Exit(m.Run())
	case os.Getenv(inside) != "":
		if err := prepareNamespaces(); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	cmd := exec.Command("/proc/self/exe", os.Args[1:]...)
	cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, os.Stdout, os.Stderr
	cmd.Env = append(os.Environ(), inside+"=1")
	cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS, Pdeathsig: syscall.SIGKILL}
	if err := cmd.Run(); err != nil {
		os.Exit(1)
	}
}

func prepareNamespaces() error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return err
	}
	for _, dir := range []string{"/etc", "/run", "/var/lib"} {
		if err := syscall.Mount("test", dir, "tmpfs", 0, ""); err != nil {
			return err
		}
	}
	eth0 := &netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "eth0"}, PeerName: "eth1"}
	if err := netlink.LinkAdd(eth0); err != nil {
		return err
	}
	for _, name := range []string{"lo", "eth0", "eth1"} {
		link, err := netlink.LinkByName(name)
		if err != nil {
			return err
		}
		if err := netlink.LinkSetUp(link); err != nil {
			return err
		}
	}
	return netlink.AddrAdd(eth0, &netlink.Addr{IPNet: &net.IPNet{IP: net.IPv4(10, 99, 0, 1), Mask: net.CIDRMask(24, 32)}})
}
