package lab

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os/exec"
	"strconv"
	"strings"
)

// Unplug takes the cables out of the host: its interfaces have no carrier.
func (h *Host) Unplug(ctx context.Context) error { return h.setPorts(ctx, "down") }

// Plug connects them again.
func (h *Host) Plug(ctx context.Context) error { return h.setPorts(ctx, "up") }

// SetMTU lets the switch lose larger packets to and from the host, as a network with a smaller MTU does.
func (h *Host) SetMTU(ctx context.Context, bytes int) error {
	return h.setPorts(ctx, "mtu", strconv.Itoa(bytes))
}

// setPorts changes the ports of the switch to which the host is connected.
func (h *Host) setPorts(ctx context.Context, change ...string) error {
	var failed error
	for _, port := range h.ports() {
		argv := append([]string{"ip", "-n", qualified(h.lab, switchPart), "link", "set", port}, change...)
		failed = errors.Join(failed, run(ctx, argv...))
	}
	return failed
}

// Limit lets the host send and receive at most so many bytes per second, in each direction of each interface. 0 ends it.
func (h *Host) Limit(ctx context.Context, bytesPerSecond int) error {
	var failed error
	for i, port := range h.ports() {
		failed = errors.Join(failed,
			limit(ctx, qualified(h.lab, switchPart), port, bytesPerSecond),
			limit(ctx, h.qualified(), fmt.Sprintf("eth%d", i), bytesPerSecond))
	}
	return failed
}

// limit limits what an interface of a network namespace sends. The queue holds packets for 400 ms, as that of a router.
func limit(ctx context.Context, namespace, device string, bytesPerSecond int) error {
	if bytesPerSecond == 0 {
		return run(ctx, "tc", "-n", namespace, "qdisc", "del", "dev", device, "root")
	}
	return run(ctx, "tc", "-n", namespace, "qdisc", "replace", "dev", device, "root",
		"tbf", "rate", fmt.Sprintf("%dbps", bytesPerSecond), "burst", "64kb", "latency", "400ms")
}

// ports are the names of these ports. host.sh creates them.
func (h *Host) ports() (names []string) {
	for i := range h.nics {
		names = append(names, fmt.Sprintf("%s.%d", h.Name, i))
	}
	return names
}

// Block lets the switch drop what each host of from sends to each host of to, until Unblock.
func (l *Lab) Block(ctx context.Context, from, to []*Host) error {
	return l.nft(ctx, fmt.Sprintf(`table bridge blocked {
	chain forward {
		type filter hook forward priority 0;
		iifname { %s } oifname { %s } drop
	}
}`, portSet(from), portSet(to)))
}

// Unblock ends all that Block began.
func (l *Lab) Unblock(ctx context.Context) error {
	return l.nft(ctx, "table bridge blocked {}\ndelete table bridge blocked")
}

// portSet lists the hosts' ports for nft.
func portSet(hosts []*Host) string {
	var ports []string
	for _, h := range hosts {
		ports = append(ports, h.ports()...)
	}
	return `"` + strings.Join(ports, `", "`) + `"`
}

// nft gives rules to the switch.
func (l *Lab) nft(ctx context.Context, rules string) error {
	cmd := exec.CommandContext(ctx, "ip", "netns", "exec", l.switchNamespace(), "nft", "-f", "-")
	cmd.Stdin = strings.NewReader(rules)
	return runCommand(ctx, cmd)
}

// Addresses returns the addresses that the host's interfaces have now, without a process on the host. It is an error
// if the host is off.
func (h *Host) Addresses() ([]netip.Prefix, error) {
	return inNetwork(h.network(), func() (list []netip.Prefix, err error) {
		addrs, err := net.InterfaceAddrs()
		if err != nil {
			return nil, err
		}
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err != nil {
				return nil, err
			}
			list = append(list, p)
		}
		return list, nil
	})
}
