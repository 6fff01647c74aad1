package kernel

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strings"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/internal/fault"
)

const routeUnit = "airlift-service-route.service"

// deviceTimeout limits the wait for a network interface at boot.
const deviceTimeout = 60 * time.Second

// EnsureServiceRoute adds a route to the Service addresses on a host without a
// default route: the kernel needs a route before kube-proxy's rules can rewrite
// a packet. It adds the route now and at every boot, with a unit that runs the
// installer at CommandPath before the kubelet, and when what manages the network is
// restarted: a route is lost when its interface goes down. Ranges with an existing route are
// left alone.
func EnsureServiceRoute(ctx context.Context, h *host.Host, serviceSubnets []netip.Prefix, dev string) error {
	var needed []string
	for _, subnet := range serviceSubnets {
		cidr := subnet.String()
		_, ours := h.Records().Find(ledger.Route, cidr)
		covered, err := routed(subnet)
		if err != nil {
			return err
		}
		if covered && !ours {
			continue
		}
		needed = append(needed, cidr)
		if err := h.Records().Record(ledger.Entry{Kind: ledger.Route, Name: cidr, Device: dev}); err != nil {
			return err
		}
		if err := AddRoute(ctx, cidr, dev); err != nil {
			return err
		}
	}
	if len(needed) == 0 {
		return nil
	}
	if _, err := h.WriteFile("/etc/systemd/system/"+routeUnit, []byte(routeUnitText(needed, dev)), 0o644); err != nil {
		return err
	}
	if err := h.Systemd().Enable(ctx, routeUnit); err != nil {
		return err
	}
	// The route exists, so nothing waits for the unit. But systemd restarts a unit with
	// PartOf only if it was started.
	return h.Systemd().StartSoon(ctx, routeUnit)
}

func routeUnitText(cidrs []string, dev string) string {
	var b strings.Builder
	fmt.Fprintf(&b, `[Unit]
Description=Route to the Kubernetes Service addresses (%s)
Wants=network-online.target
After=network-online.target systemd-networkd.service NetworkManager.service networking.service
PartOf=systemd-networkd.service NetworkManager.service networking.service
Before=kubelet.service

[Service]
Type=oneshot
RemainAfterExit=yes
`, strings.Join(cidrs, ", "))
	for _, cidr := range cidrs {
		fmt.Fprintf(&b, "ExecStart=%s host-route --cidr %s --dev %s\n", host.CommandPath, cidr, dev)
	}
	b.WriteString("\n[Install]\nWantedBy=multi-user.target\n")
	return b.String()
}

// routed reports whether the host has a route for the first address of a range.
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

// AddRoute adds a route for a range to a network interface, for which it waits
// up to a minute. An existing route is not changed.
func AddRoute(ctx context.Context, cidr, dev string) error {
	_, dst, err := net.ParseCIDR(cidr)
	if err != nil {
		return fault.New(fault.Usage, "adding a route: %w", err).Hint("use CIDR notation, such as 10.96.0.0/12")
	}
	ctx, cancel := context.WithTimeout(ctx, deviceTimeout)
	defer cancel()
	link, err := waitForLink(ctx, dev)
	if err != nil {
		return fmt.Errorf("adding a route to %s: %w", cidr, err)
	}
	route := deviceRoute(dst, link)
	// systemd-networkd removes routes that it does not know, except the kernel's routes.
	route.Protocol = unix.RTPROT_KERNEL
	if err := netlink.RouteAdd(route); err != nil && !errors.Is(err, unix.EEXIST) {
		return fmt.Errorf("adding a route to %s on %s: %w", cidr, dev, err)
	}
	return nil
}

// deviceRoute is the route for a range to an interface. Adding and removing use the same
// attributes: the kernel does not find a route by its range alone. Removing sets no protocol, and
// so matches a route of any protocol.
func deviceRoute(dst *net.IPNet, link netlink.Link) *netlink.Route {
	route := &netlink.Route{LinkIndex: link.Attrs().Index, Dst: dst, Scope: netlink.SCOPE_LINK}
	if dst.IP.To4() == nil {
		route.Scope = netlink.SCOPE_UNIVERSE // the only scope of IPv6
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
			state = "it does not exist"
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

// RemoveRoutes removes the routes in the ledger.
func RemoveRoutes(ctx context.Context, h *host.Host) error {
	var failures []error
	for _, e := range h.Records().Entries(ledger.Route) {
		if err := removeRoute(e.Name, e.Device); err != nil {
			failures = append(failures, err)
			continue
		}
		failures = append(failures, h.Records().Forget(ledger.Route, e.Name))
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
		return nil // the route was removed with its interface
	}
	if err != nil {
		return fmt.Errorf("removing the route to %s: %w", cidr, err)
	}
	if err := netlink.RouteDel(deviceRoute(dst, link)); err != nil && !errors.Is(err, unix.ESRCH) && !errors.Is(err, unix.ENETDOWN) {
		return fmt.Errorf("removing the route to %s: %w", cidr, err)
	}
	return nil
}
