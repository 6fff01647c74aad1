package host

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/fault"
)

// StubPath is where the installer's program, without a bundle's payload, stays
// on the host for what must be done again at every boot.
const StubPath = "/usr/local/lib/airlift/install"

const routeUnit = "airlift-service-route.service"

// deviceTimeout bounds the wait for a network interface at boot.
const deviceTimeout = 60 * time.Second

// InstallStub copies the running program, whose sha256 the bundle says, to
// StubPath.
func (h *Host) InstallStub(ctx context.Context, sha256 string) error {
	// The program may have no other name: it was started from memory.
	self, err := os.Open("/proc/self/exe")
	if err != nil {
		return fmt.Errorf("reading the installer's own program: %w", err)
	}
	defer self.Close()
	_, err = h.InstallBinary(ctx, Binary{Path: StubPath, SHA256: sha256}, self)
	return err
}

// EnsureServiceRoute lets this host's own processes reach Service addresses
// where it has no default route: the kernel asks for a route before kube-proxy
// gets to rewrite a packet. The route is added now and at every boot, by a
// unit that runs the program at StubPath before the kubelet. The subnet may
// be two, divided by a comma. Where routes cover it, nothing is done.
func (h *Host) EnsureServiceRoute(ctx context.Context, serviceSubnets []netip.Prefix, dev string) error {
	var needed []string
	for _, subnet := range serviceSubnets {
		cidr := subnet.String()
		_, ours := h.recorded(kindRoute, cidr)
		covered, err := routed(subnet)
		if err != nil {
			return err
		}
		if covered && !ours {
			continue
		}
		needed = append(needed, cidr)
		if err := h.record(entry{Kind: kindRoute, Name: cidr, Device: dev}); err != nil {
			return err
		}
		if err := AddRoute(ctx, cidr, dev); err != nil {
			return err
		}
	}
	if len(needed) == 0 {
		return nil
	}
	changed, err := h.WriteFile("/etc/systemd/system/"+routeUnit, []byte(routeUnitText(needed, dev)), 0o644)
	if err != nil {
		return err
	}
	return h.Enable(ctx, routeUnit, changed)
}

func routeUnitText(cidrs []string, dev string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `[Unit]
Description=Route to the Kubernetes Service addresses (%s)
Wants=network-online.target
After=network-online.target
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
`, strings.Join(cidrs, ", "))
	for _, cidr := range cidrs {
		fmt.Fprintf(&b, "ExecStart=%s host-route --cidr %s --dev %s\n", StubPath, cidr, dev)
	}
	b.WriteString("\n[Install]\nWantedBy=multi-user.target\n")
	return b.String()
}

// routed says whether the host has a route for the first address of a range.
func routed(subnet netip.Prefix) (bool, error) {
	// The first address is the API server's own Service, kubernetes.default.
	_, err := netlink.RouteGet(subnet.Masked().Addr().Next().AsSlice())
	if errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.EHOSTUNREACH) {
		return false, nil
	}
	if err != nil {
		return false, fmt.Errorf("finding the route to %s: %w", subnet, err)
	}
	return true, nil
}

// AddRoute sends a range to a network interface, which it waits for up to a
// minute. A route that is there already is left as it is.
func AddRoute(ctx context.Context, cidr, dev string) error {
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return fault.New(fault.Usage, "write it like 10.96.0.0/12", "adding a route: %w", err)
	}
	ctx, cancel := context.WithTimeout(ctx, deviceTimeout)
	defer cancel()
	link, err := waitForLink(ctx, dev)
	if err != nil {
		return fmt.Errorf("adding a route to %s: %w", cidr, err)
	}
	if err := netlink.RouteAdd(deviceRoute(dst, link)); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding a route to %s on %s: %w", cidr, dev, err)
	}
	return nil
}

// deviceRoute sends a range straight to an interface. Adding and removing must
// agree on all of it: the kernel does not find a route by its range alone.
func deviceRoute(dst *net.IPNet, link netlink.Link) *netlink.Route {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK, Protocol: unix.RTPROT_STATIC}
	if dst.IP.To4() == nil {
		route.Scope = netlink.SCOPE_UNIVERSE // IPv6 knows no other
	}
	return route
}

// waitForLink returns the interface once it is up.
func waitForLink(ctx context.Context, dev string) (netlink.Link, error) {
	tick := time.NewTicker(250 * time.Millisecond)
	defer tick.Stop()
	for {
		link, err := netlink.LinkByName(dev)
		state := "it is down"
		switch {
		case err == nil && link.Attrs().RawFlags&unix.IFF_UP != 0:
			return link, nil
		case errors.As(err, &netlink.LinkNotFoundError{}):
			state = "there is none of that name"
		case err != nil:
			return nil, fmt.Errorf("looking for interface %q: %w", dev, err)
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("waiting for interface %q: %w; %s", dev, ctx.Err(), state)
		case <-tick.C:
		}
	}
}

// RemoveRoutes takes away the routes that we added.
func (h *Host) RemoveRoutes(ctx context.Context) error {
	var failures []error
	for _, e := range h.entries(kindRoute) {
		if err := removeRoute(e.Name, e.Device); err != nil {
			failures = append(failures, err)
			continue
		}
		failures = append(failures, h.forget(kindRoute, e.Name))
	}
	return errors.Join(failures...)
}

func removeRoute(cidr, dev string) error {
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return fmt.Errorf("removing the route to %s: %w", cidr, err)
	}
	link, err := netlink.LinkByName(dev)
	if errors.As(err, &netlink.LinkNotFoundError{}) {
		return nil // it went with its interface
	}
	if err != nil {
		return fmt.Errorf("removing the route to %s: %w", cidr, err)
	}
	if err := netlink.RouteDel(deviceRoute(dst, link)); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENETDOWN) {
		return fmt.Errorf("removing the route to %s: %w", cidr, err)
	}
	return nil
}
