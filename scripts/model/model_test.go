//go:debug tlsmlkem=0
package model

import (
	"bytes"
	"errors"
	"flag"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/klog/v2"
	"pgregory.net/rapid"

	"airlift/installer/config"
	"airlift/installer/payload"
	"airlift/installer/pods"
	"airlift/scripts/fixtures/rig"
	_ "airlift/scripts/fixtures/seed"
)

// TestMain runs the tests in namespaces of their own: nothing that a command does with the network or
// mounts reaches this machine.
func TestMain(m *testing.M) {
	for name, value := range map[string]string{"rapid.checks": "10", "rapid.seed": "1", "rapid.nofailfile": "true"} { // make model sets others
		if err := flag.Set(name, value); err != nil {
			panic(err)
		}
	}
	flag.Parse()
	debug.SetGCPercent(1600)
	// What clients of the load balancer report while no API server answers. Their pause after it would last from one world to the next one.
	klog.SetLogger(logr.Discard())
	utilruntime.ErrorHandlers = nil
	if os.Geteuid() != 0 {
		os.Exit(m.Run())
	}
	const inside = "AIRLIFT_MODEL_INSIDE"
	if os.Getenv(inside) != "" {
		// /var/lib is a directory of its own here, and / is shared, but not with this machine.
		for _, mount := range []struct {
			source, target, kind string
			flags                uintptr
		}{{"", "/", "", syscall.MS_REC | syscall.MS_PRIVATE}, {"model", "/var/lib", "tmpfs", 0}, {"", "/", "", syscall.MS_REC | syscall.MS_SHARED}} {
			if err := syscall.Mount(mount.source, mount.target, mount.kind, mount.flags, ""); err != nil {
				panic(err)
			}
		}
		if err := errors.Join(network(), installTools()); err != nil {
			panic(err)
		}
		os.Exit(m.Run())
	}
	run := func(stdout, stderr io.Writer, flags ...string) error {
		cmd := exec.Command("/proc/self/exe", append(slices.Clone(os.Args[1:]), flags...)...)
		cmd.Stdin, cmd.Stdout, cmd.Stderr = os.Stdin, stdout, stderr
		cmd.Env = append(os.Environ(), inside+"=1", "PATH=/nonexistent")
		cmd.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWNET | syscall.CLONE_NEWNS | unix.CLONE_NEWCGROUP, Pdeathsig: syscall.SIGKILL}
		return cmd.Run()
	}
	var err, otherErr error
	if flag.Lookup("test.run").Value.String() == "" && flag.Lookup("test.skip").Value.String() == "" {
		var other bytes.Buffer
		var done sync.WaitGroup
		done.Go(func() { otherErr = run(&other, &other, "-test.run="+inOther, "-test.testlogfile=") })
		err = run(os.Stdout, os.Stderr, "-test.skip="+inOther)
		done.Wait()
		_, _ = other.WriteTo(os.Stdout)
	} else {
		err = run(os.Stdout, os.Stderr)
	}
	if err != nil || otherErr != nil {
		os.Exit(1)
	}
}

// inOther are the tests that run in a process of their own if all run: a world works on one processor. They are about half of the work.
const inOther = "^(TestReconfigureKilled|TestEditedPause|TestEditsKilled|TestFound|TestDrift|TestVariablesAreNotShown|TestUndoOfImages|TestPairs)$"

// network creates the interface with the addresses of all hosts, and a file system of cgroups without any.
func network() error {
	link := &netlink.Veth{PeerName: "eth1", LinkAttrs: netlink.LinkAttrs{Name: "eth0"}}
	if err := netlink.LinkAdd(link); err != nil {
		return err
	}
	if err := netlink.LinkSetUp(link); err != nil {
		return err
	}
	for i := range 10 { // each host may get another address
		a, err := netlink.ParseAddr(fmt.Sprintf("10.0.0.%d/24", i+1))
		if err != nil {
			return err
		}
		if err := netlink.AddrAdd(link, a); err != nil {
			return err
		}
	}
	_, all, _ := net.ParseCIDR("0.0.0.0/0")
	if err := netlink.RouteAdd(&netlink.Route{LinkIndex: link.Attrs().Index, Dst: all, Gw: net.ParseIP("10.0.0.254")}); err != nil {
		return err
	}
	if err := serveNothing(); err != nil {
		return err
	}
	if err := os.Mkdir(cgroups, 0o755); err != nil {
		return err
	}
	return syscall.Mount("cgroup2", cgroups, "cgroup2", 0, "")
}

// serveNothing accepts the connections to API servers that client-go opens without a context, for the list of kinds, and closes them a little
// later: meanwhile, the request gets a connection of the world that is idle. Without an answer, a connection would hold up the clock for 10 seconds.
func serveNothing() error {
	lo, err := netlink.LinkByName("lo")
	if err := errors.Join(err, netlink.LinkSetUp(lo)); err != nil {
		return err
	}
	for _, address := range []string{Endpoint, otherEndpoint} {
		to := &net.IPNet{IP: net.ParseIP(address), Mask: net.CIDRMask(32, 32)}
		if err := netlink.RouteAdd(&netlink.Route{Dst: to, LinkIndex: lo.Attrs().Index, Type: unix.RTN_LOCAL, Table: unix.RT_TABLE_LOCAL, Scope: netlink.SCOPE_HOST}); err != nil {
			return err
		}
	}
	l, err := net.Listen("tcp", fmt.Sprintf(":%d", config.DefaultBindPort))
	if err != nil {
		return err
	}
	go func() {
		for {
			c, err := l.Accept()
			if err != nil {
				return
			}
			time.AfterFunc(10*time.Millisecond, func() { _ = c.Close() })
		}
	}()
	return nil
}

// files are the files of the model: bundles, files with the site's own images, bundles with packages of the distribution, and with the load balancer.
type files struct{ bundles, more, packaged, balanced []*payload.Bundle }

func bundles(t *testing.T) (f files) {
	rig.Root(t)
	for _, v := range Versions {
		f.bundles, f.more = append(f.bundles, newBundle(t, v.Kubernetes, v.Etcd, false, false)), append(f.more, newSiteBundle(t, v.Kubernetes))
		f.packaged = append(f.packaged, newBundle(t, v.Kubernetes, v.Etcd, true, false))
		f.balanced = append(f.balanced, newBundle(t, v.Kubernetes, v.Etcd, false, true))
	}
	writeUserPackages(t)
	return f
}

// play runs a sequence at a new site.
func play(t *testing.T, f files, list Sequence) (site *Site, err error) {
	dir, err := os.MkdirTemp("/dev/shm", "model-")
	if err != nil {
		t.Fatal(err)
	}
	defer os.RemoveAll(dir)
	packaged, balanced := list.hasPackages(), list.hasBalancer()
	switch {
	case packaged:
		f.bundles = f.packaged
	case balanced:
		f.bundles = f.balanced
	}
	synctest.Test(t, func(t *testing.T) {
		if site, err = NewSite(dir, list.hosts(), f.bundles, f.more); err != nil {
			return
		}
		site.packaged, site.balanced = packaged, balanced
		defer site.Close()
		err = site.Run(list)
	})
	return site, err
}

// commands that are drawn more often come twice.
var commands = []string{
	"init", "reset", "reset --force", "upgrade apply", "upgrade apply", "upgrade undo", "the way back", "edit a manifest", editAPIServer, renewAll,
	"etcd snapshot", "etcd restore", "etcd snapshot, below /var/lib/airlift", "etcd snapshot, in etcd's directory",
	reconfigureWide, reconfigureLittle, reconfigureUndo, reconfigureBroken, reconfigureKey, reconfigureEncrypt, formerRecords, userPod, harden, harden, soften,
}

// memberCommands are drawn at sites with several hosts.
var memberCommands = slices.Concat([]string{
	reconfigureNode, reconfigureNode,
	"join", "join --control-plane", "join --control-plane", "upgrade node", "upgrade node", "reset", "kubectl delete node", "the API server is lost",
	"rotate-ca distribute", "rotate-ca issue", "rotate-ca cancel",
	nodeRemove, nodeRemove, claimAddress, endpointMoves, endpointApply, endpointNode, endpointNode, endpointUndo,
	registryEnable, registryEnable, registryDisable, siteImport, siteImportAll, siteApply, recordAddress, otherAddress,
}, commands)

// backupCommands are drawn at sites with a target of backups.
var backupCommands = slices.Concat([]string{backupsTimer, backupsTimer, backupsElsewhere, backupsOff, backupsRun, backupsRun, backupsRun, backupOnce, backupRestore, hostLost}, targetStates)

// packageCommands are drawn at sites whose files have packages of the distribution.
var packageCommands = []string{packagesInstall, packagesInstall, packagesRemove, userPackage, userUpgrade}

// adoptCommands are drawn at sites that another tool made.
var adoptCommands = slices.Concat([]string{adoptNode, adoptNode, adoptNode, disownNode, resetRemoveNode, "reset", "reset"}, memberCommands)

// sites are the sites that are drawn: what runs on each host at the beginning.
var sites = [][]string{
	{"init"},
	{"init"},
	{"init", ""},
	{"init", "join"},
	{"init", "join --control-plane", "join --control-plane"},
	{"init", "join --control-plane", "join --control-plane", "join", "join"},
}

// sequences draws sequences: a site, then often an upgrade or a rotation on all hosts, and drawn commands.
func sequences() *rapid.Generator[Sequence] {
	return rapid.Custom(func(rt *rapid.T) (list Sequence) {
		if rapid.IntRange(0, 5).Draw(rt, "seed") == 1 {
			return seedSequences().Draw(rt, "with a seed")
		}
		site, file := rapid.SampledFrom(sites).Draw(rt, "site"), rapid.IntRange(0, 1).Draw(rt, "file")
		names := commands
		if len(site) > 1 {
			names = memberCommands
		}
		hardened := rapid.IntRange(0, 2).Draw(rt, "hardened") == 1
		for i, name := range site {
			if name == "init" && hardened {
				name = initHardened
			}
			if name != "" {
				list = append(list, Command{Name: name, Host: i + 1, File: file})
			}
		}
		if rapid.IntRange(0, 3).Draw(rt, "made by another tool") == 1 {
			names = adoptCommands
			for _, c := range slices.Clone(list) {
				list = append(list, Command{Name: otherTool, Host: c.Host})
			}
			for _, c := range slices.Clone(list[:len(list)/2]) {
				list = append(list, Command{Name: adoptNode, Host: c.Host, File: file})
			}
		}
		most := 6
		if rapid.IntRange(0, 3).Draw(rt, "target of backups") == 1 {
			names, most = slices.Concat(names, backupCommands, backupCommands), 12
		}
		switch rapid.IntRange(0, 9).Draw(rt, "packages or load balancer") {
		case 1:
			names = slices.Concat(names, packageCommands, packageCommands)
			list = append(Sequence{drawn([]string{packagesInstall}, len(site)).Draw(rt, "packages first")}, list...)
		case 2:
			names, most = slices.Concat(names, balancerCommands), 12
			list = append(list, Command{Name: poolsMany, Host: 1}, Command{Name: serviceAny, Host: 1})
		}
		for _, c := range rapid.SampledFrom([]Sequence{nil, nil, upgradeAll(len(site), file+1), slices.Concat(stage(len(site), "distribute"), stage(len(site), "issue"), stage(len(site), "finish"))}).Draw(rt, "plan") {
			if rapid.IntRange(0, 3).Draw(rt, "undisturbed") == 1 {
				c = disturbed(c, len(site)).Draw(rt, "disturbed")
			}
			list = append(list, c)
			if rapid.IntRange(0, 7).Draw(rt, "other") == 1 {
				list = append(list, drawn(names, len(site)).Draw(rt, "other command"))
			}
		}
		return append(list, rapid.SliceOfN(drawn(names, len(site)), 1, most).Draw(rt, "then")...)
	})
}

// seedCommands are drawn at sites with a seed.
var seedCommands = []string{seedBoots, seedBoots, seedGiven, seedRun, seedEnd, seedClaims}

// seedSequences draws sites whose hosts boot from a seed in any order, with other commands between them and after that.
func seedSequences() *rapid.Generator[Sequence] {
	return rapid.Custom(func(rt *rapid.T) (list Sequence) {
		hosts, file := rapid.IntRange(1, 4).Draw(rt, "hosts"), rapid.IntRange(0, 1).Draw(rt, "file")
		for range rapid.IntRange(0, 3).Draw(rt, "edits") {
			list = append(list, Command{Name: rapid.SampledFrom([]string{editHosts, editRole, editRegistry, editDocuments, editRenewal, editMirrors, editSecrets, editLabels}).Draw(rt, "edit"), Host: rapid.IntRange(2, 5).Draw(rt, "host")%hosts + 1})
		}
		alone := rapid.IntRange(0, 1).Draw(rt, "alone") == 1
		names := slices.Concat(adoptCommands, backupCommands, []string{clusterApply, clusterApply, clusterApply}, seedCommands, seedCommands, seedCommands)
		if rapid.IntRange(0, 4).Draw(rt, "packages") == 1 {
			names = append(names, packageCommands...)
		}
		var order []int
		for i := range hosts {
			order = append(order, i+1)
		}
		for _, h := range rapid.Permutation(order).Draw(rt, "order") {
			c := disturbed(Command{Name: seedBoots, Host: h, File: file}, hosts).Draw(rt, "disturbed")
			c.Days = 0
			list = append(list, c)
			if !alone && rapid.IntRange(0, 2).Draw(rt, "other") == 1 {
				list = append(list, drawn(names, hosts).Draw(rt, "other command"))
			}
		}
		list = append(list, Command{Name: seedDone, Host: 1, File: file})
		return append(list, rapid.SliceOfN(drawn(names, hosts), 0, 4).Draw(rt, "then")...)
	})
}

// upgradeAll upgrades all hosts.
func upgradeAll(hosts, file int) Sequence {
	list := Sequence{{Name: "upgrade apply", Host: 1, File: file}}
	for i := 1; i < hosts; i++ {
		list = append(list, Command{Name: "upgrade node", Host: i + 1, File: file})
	}
	return list
}

// stage is a stage of the rotation of the CAs on all hosts. The last command cleans up.
func stage(hosts int, name string) (list Sequence) {
	for i := range hosts + 1 {
		list = append(list, Command{Name: "rotate-ca " + name, Host: i%hosts + 1})
	}
	return list
}

// repeatable are commands of which a second run changes nothing.
var repeatable = regexp.MustCompile(`^(init|join.*|adopt|disown|upgrade apply|upgrade node|reset.*|endpoint .*|registry .*|import.*|apply|packages|packages remove|reconfigure everything|reconfigure a little|reconfigure node)$`)

// showsFiles are commands whose dry run writes the files that would change.
var showsFiles = regexp.MustCompile(`^(init|join.*|upgrade apply|upgrade node)$`)

// drawn draws a command.
func drawn(names []string, hosts int) *rapid.Generator[Command] {
	return rapid.Custom(func(rt *rapid.T) Command {
		c := Command{
			Name: rapid.SampledFrom(names).Draw(rt, "command"), Host: rapid.IntRange(1, hosts).Draw(rt, "host"), File: rapid.IntRange(0, len(Versions)-1).Draw(rt, "file"),
		}
		if c.Name == nodeRemove || c.Name == claimAddress || c.Name == recordAddress {
			c.Target = rapid.IntRange(1, hosts).Draw(rt, "target")
		}
		return disturbed(c, hosts).Draw(rt, "disturbed")
	})
}

// disturbed draws what happens during a command.
func disturbed(c Command, hosts int) *rapid.Generator[Command] {
	return rapid.Custom(func(rt *rapid.T) Command {
		c := c
		c.Slow, c.Days = rapid.IntRange(0, 5).Draw(rt, "slow") == 1, rapid.SampledFrom([]int{0, 0, 0, 0, 1, 200}).Draw(rt, "days")
		if rapid.Bool().Draw(rt, "disturbed") {
			last := rapid.SampledFrom([]int{15, 60, 220}).Draw(rt, "last")
			c.Crash, c.Full = rapid.IntRange(1, last).Draw(rt, "change"), rapid.IntRange(0, 3).Draw(rt, "full") == 1
			c.Left = rapid.IntRange(0, 2).Draw(rt, "left") == 1
		}
		if !repeatable.MatchString(c.Name) {
			return c
		}
		c.Shown = showsFiles.MatchString(c.Name) && rapid.IntRange(0, 3).Draw(rt, "shown") == 1
		c.Again = rapid.IntRange(0, 3).Draw(rt, "again") == 1
		if rapid.IntRange(0, 2).Draw(rt, "parallel") == 1 {
			c.Meanwhile = rapid.SliceOfN(meanwhile(hosts, c.File), 1, 3).Draw(rt, "meanwhile")
		}
		return c
	})
}

// meanwhile draws a command that runs while another one does.
func meanwhile(hosts, file int) *rapid.Generator[Command] {
	return rapid.Custom(func(rt *rapid.T) Command {
		return Command{
			Name: rapid.SampledFrom([]string{"upgrade node", renewAll, endpointMoves, endpointMoves, backupsRun}).Draw(rt, "command"), Host: rapid.IntRange(1, hosts).Draw(rt, "host"),
			File: file, Delay: rapid.IntRange(0, 40).Draw(rt, "delay"),
		}
	})
}

// allPairs is how many sequences reach each pair of an interrupted command and the next one.
const allPairs = 100000

func TestSequences(t *testing.T) {
	files := bundles(t)
	began, runs, crashes, played, compared := time.Now(), 0, 0, 0, 0
	rapid.Check(t, func(rt *rapid.T) {
		list := sequences().Draw(rt, "sequence")
		if os.Getenv("MODEL_VERBOSE") != "" {
			fmt.Fprintf(os.Stderr, "%s %d\n%s\n", time.Since(began), played, list)
		}
		site, err := play(t, files, list)
		played, runs, crashes, compared = played+1, runs+site.Runs, crashes+site.Crashes, compared+site.Compared
		if err != nil {
			rt.Fatalf("%s\n\nviolation: %v", list, err)
		}
	})
	took := time.Since(began)
	if compared == 0 {
		t.Error("no node was compared with the stored configuration")
	}
	table, missing := Reached.Table(pairNames)
	t.Log("\n" + table)
	if played >= allPairs && len(missing) > 0 {
		t.Errorf("%d pairs of commands were never reached in %d sequences", len(missing), played)
	}
	t.Logf("%d sequences, %d commands, %d crashes, %d comparisons in %s: %.1f sequences per second", played, runs, crashes, compared, took.Round(time.Second), float64(played)/took.Seconds())
}

// found are sequences in which something was lost once, by the defect with the number. Its patch in
// testdata/defects removes the fix again.
var found = []struct {
	name     string
	sequence Sequence
}{
	{"14: a renewal does not drop the turn of an upgrade on its host", Sequence{
		{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join --control-plane", Host: 3}, {Name: "upgrade apply", Host: 1, File: 1},
		{Name: "upgrade node", Host: 2, File: 1, Meanwhile: []Command{{Name: renewAll, Host: 2, Delay: 4}, {Name: "upgrade node", Host: 3, File: 1, Delay: 5}}},
	}},
	{"17: the backup of an upgrade can be restored", Sequence{
		{Name: "init", Host: 1}, {Name: "upgrade apply", Host: 1, File: 1}, {Name: "the way back", Host: 1},
	}},
	{"18: an etcd of a new minor version that starts slowly", Sequence{
		{Name: "init", Host: 1}, {Name: "upgrade apply", Host: 1, File: 1, Slow: true}, {Name: "the way back", Host: 1},
	}},
	{"19: init does not continue an interrupted restore", Sequence{
		{Name: "init", Host: 1}, {Name: "etcd snapshot", Host: 1}, {Name: "reset", Host: 1}, {Name: "etcd restore, interrupted", Host: 1, Crash: 84},
		{Name: "init", Host: 1}, {Name: "etcd restore", Host: 1},
	}},
	{"20: a second upgrade after an edit keeps what undo restores", Sequence{
		{Name: "init", Host: 1, File: 1}, {Name: "upgrade apply", Host: 1, File: 2}, {Name: "edit a manifest", Host: 1}, {Name: "upgrade apply", Host: 1, File: 2},
		{Name: "upgrade undo", Host: 1},
	}},
	{"22: a backup that reset would remove", Sequence{
		{Name: "init", Host: 1}, {Name: "etcd snapshot, below /var/lib/airlift", Host: 1}, {Name: "etcd snapshot, in etcd's directory", Host: 1}, {Name: "reset --force", Host: 1},
	}},
	{"23: init does not start an older etcd with newer data", Sequence{
		{Name: "init", Host: 1, File: 1}, {Name: "upgrade apply", Host: 1}, {Name: "init", Host: 1, Shown: true, Again: true}, {Name: "etcd snapshot", Host: 1},
	}},
	{"24: init waits for a static pod that it has changed", Sequence{
		{Name: "init", Host: 1}, {Name: editAPIServer, Host: 1}, {Name: "init", Host: 1}, {Name: editAPIServer, Host: 1}, {Name: "init", Host: 1, Crash: 1},
	}},
	{"25: reset removes a package that dpkg was unpacking", Sequence{{Name: packagesInstall, Host: 1, Before: "the end of dpkg", Left: true}, {Name: "reset", Host: 1}}},
	{"26: the end of the timer removes what an interrupted run has written", Sequence{{Name: "init", Host: 1}, {Name: backupsTimer, Host: 1, Before: "/etc/systemd/system/airlift-backup.service", Left: true}, {Name: backupsOff, Host: 1}}},
	{"27: backups of an earlier cluster wait", Sequence{
		{Name: "init", Host: 1}, {Name: backupsTimer, Host: 1}, {Name: targetDown, Host: 1}, {Name: backupsRun, Host: 1}, {Name: "reset", Host: 1}, {Name: targetWorks, Host: 1}, {Name: "init", Host: 1}, {Name: backupsTimer, Host: 1},
	}},
	{"28: a host that gave up and is a node by another command takes the seed again", Sequence{
		{Name: seedBoots, Host: 1}, {Name: seedEnd, Host: 1}, {Name: seedBoots, Host: 2}, {Name: "join", Host: 2}, {Name: seedRun, Host: 2},
	}},
	{"29: a Service keeps the address that a new node has", Sequence{
		{Name: "init", Host: 1}, {Name: "join", Host: 6}, {Name: poolsOnNodes, Host: 1}, {Name: serviceAny, Host: 1}, {Name: "join", Host: 2},
	}},
}

// TestHosts runs sequences on several hosts.
func TestHosts(t *testing.T) {
	files := bundles(t)
	for _, list := range []Sequence{
		{
			{Name: "init", Host: 1, Shown: true, Again: true}, {Name: "join", Host: 2, Shown: true, Again: true}, {Name: "join --control-plane", Host: 3, Shown: true, Again: true},
			{Name: "upgrade apply", Host: 1, File: 1, Shown: true, Again: true}, {Name: "upgrade node", Host: 3, File: 1, Shown: true, Again: true}, {Name: "upgrade node", Host: 2, File: 1, Shown: true, Again: true},
			{Name: "reset", Host: 2, Again: true}, {Name: "reset", Host: 3, Again: true},
		},
		{
			{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join --control-plane", Host: 3}, {Name: "upgrade apply", Host: 1, File: 1},
			{Name: "upgrade node", Host: 2, File: 1, Meanwhile: []Command{{Name: "upgrade node", Host: 3, File: 1, Delay: 3}}},
			{Name: renewAll, Host: 1, Meanwhile: []Command{{Name: renewAll, Host: 2, Delay: 1}, {Name: renewAll, Host: 3, Delay: 1}}},
		},
		slices.Concat(Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join", Host: 3}}, stage(3, "distribute"), stage(3, "issue"), stage(3, "finish")),
	} {
		site, err := play(t, files, list)
		if err != nil {
			t.Fatalf("%s\n\nviolation: %v", list, err)
		}
		t.Log(site.report.String(), strings.Join(site.log, "\n"))
	}
}

// TestRegistry: the embedded registry is enabled, followed and disabled, also between crashes.
func TestRegistry(t *testing.T) {
	planes := Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join", Host: 3}}
	enable := func(host int) Command { return Command{Name: registryEnable, Host: host, Again: true} }
	prints(t, slices.Concat(planes, Sequence{
		{Name: registryEnable, Host: 3}, enable(1), enable(2), enable(3), {Name: registryNode, Host: 3, Again: true}, {Name: "join", Host: 4},
		{Name: "upgrade apply", Host: 1, File: 1}, {Name: "upgrade node", Host: 2, File: 1}, {Name: "upgrade node", Host: 3, File: 1}, {Name: "reset", Host: 2},
		{Name: registryDisable, Host: 1, Again: true}, {Name: registryEnable, Host: 1, File: 1}, {Name: registryDisable, Host: 1},
	}), "registry enable: [^=]*the cluster has no embedded registry yet", "registry enable, and again: <nil>", "registry enable, and again: <nil>", "registry enable, and again: <nil>", "registry node, and again: <nil>",
		"join: <nil>", "upgrade apply: <nil>", "upgrade node: <nil>", "reset: <nil>", "registry disable, and again: <nil>", "registry enable: <nil>", "registry disable: <nil>")
	for n := 4; n < 40; n += 9 {
		prints(t, Sequence{{Name: "init", Host: 1}, {Name: "join", Host: 2}, {Name: registryEnable, Host: 1, Crash: n}, {Name: registryEnable, Host: 2, Crash: n}, {Name: registryDisable, Host: 1, Crash: n}}, "registry disable, crash at change [0-9]*: <nil>|registry disable: <nil>")
	}
}

// TestSite: the site's own images and manifests.
func TestSite(t *testing.T) {
	prints(t, Sequence{
		{Name: "init", Host: 1}, {Name: "join", Host: 2}, {Name: siteApply, Host: 1}, {Name: siteImport, Host: 1, Again: true}, {Name: siteApply, Host: 1, Again: true}, {Name: siteImportAll, Host: 1},
		{Name: registryEnable, Host: 1}, {Name: registryEnable, Host: 2}, {Name: siteImportAll, Host: 1, Again: true}, {Name: siteApply, Host: 1, File: 1}, {Name: "upgrade apply", Host: 1, File: 1},
	}, "apply: [^=]*not imported on this node", "import, and again: <nil>", "apply, and again: <nil>", "all-nodes: [^=]*needs the embedded registry", "registry enable: <nil>", "all-nodes, and again: <nil>",
		"apply: [^=]*the manifests of this file were rendered for", "upgrade apply: <nil>")
	for n, crashes := 1, 1; crashes > 0; n++ { // also before each change of containerd's data
		site, err := play(t, bundles(t), Sequence{{Name: "init", Host: 1}, {Name: siteImport, Host: 1, Crash: n, Again: true}})
		if err != nil || !strings.Contains(site.report.String(), siteImport+", and again: <nil>") && site.Crashes > 0 && !strings.Contains(site.report.String(), siteImport+", crash") {
			t.Fatalf("killed before change %d: %v", n, err)
		}
		crashes = site.Crashes
	}
}

// TestAdopt: nodes of another tool are adopted. An upgrade is undone, and reset gives back what was there; disown leaves what runs.
func TestAdopt(t *testing.T) {
	site := Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join", Host: 3}, {Name: otherTool, Host: 1}, {Name: otherTool, Host: 2}, {Name: otherTool, Host: 3}}
	adopted := slices.Concat(site, Sequence{{Name: adoptNode, Host: 1, Again: true}, {Name: adoptNode, Host: 2}, {Name: adoptNode, Host: 3}})
	prints(t, slices.Concat(adopted, Sequence{
		{Name: "upgrade apply", Host: 1, File: 1}, {Name: "reset", Host: 1}, {Name: disownNode, Host: 1, Again: true}, {Name: adoptNode, Host: 1, File: 1},
		{Name: "upgrade node", Host: 3, File: 1}, {Name: "upgrade undo", Host: 3}, {Name: "reset", Host: 3, Again: true}, {Name: resetRemoveNode, Host: 3},
	}), "adopt, and again: <nil>", "adopt: <nil>", "adopt: <nil>", "upgrade apply: <nil>", "reset: [^=]*this node was upgraded", "disown, and again: <nil>", "adopt: <nil>",
		"upgrade node: <nil>", "undo: <nil>", "reset, and again: <nil>", "remove-node: <nil>")
	prints(t, slices.Concat(adopted, Sequence{
		{Name: reconfigureWide, Host: 1}, {Name: "reset", Host: 1}, {Name: reconfigureUndo, Host: 1}, {Name: "reset", Host: 1, Again: true},
		{Name: registryEnable, Host: 2}, {Name: disownNode, Host: 2}, {Name: "reset", Host: 2}, {Name: registryDisable, Host: 1}, {Name: disownNode, Host: 2},
	}), "everything: <nil>", "reset: [^=]*this node was reconfigured", "undo: <nil>", "reset, and again: <nil>")
}

// TestMembership: a control plane is taken out of the cluster and joins again. The endpoint changes and changes back.
func TestMembership(t *testing.T) {
	planes := Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join --control-plane", Host: 3}, {Name: "join", Host: 4}}
	prints(t, slices.Concat(planes, Sequence{
		{Name: nodeRemove, Host: 1, Target: 3}, {Name: "reset", Host: 3}, {Name: "join --control-plane", Host: 3}, {Name: nodeRemove, Host: 3, Target: 1},
		{Name: "reset", Host: 1}, {Name: nodeRemove, Host: 2, Target: 4}, {Name: "reset", Host: 4}, {Name: "join", Host: 4},
	}), "node remove host3: <nil>", "join --control-plane: <nil>", "node remove host1: <nil>", "node remove host4: <nil>", "join: <nil>")
	follow := Sequence{{Name: endpointNode, Host: 2}, {Name: endpointNode, Host: 3}, {Name: endpointNode, Host: 4}}
	prints(t, slices.Concat(planes, Sequence{{Name: endpointApply, Host: 1}}, follow, Sequence{{Name: endpointApply, Host: 1, Again: true}, {Name: endpointUndo, Host: 2}}, follow, Sequence{{Name: endpointNode, Host: 1}, {Name: endpointUndo, Host: 2}}),
		"endpoint apply: <nil>", "endpoint node: <nil>", "endpoint undo: <nil>")
}

// TestEncryption: Secrets are encrypted in two steps, each on all control planes, also with one that joins between them. The steps are
// undone, and none can be skipped. What is interrupted is continued and undone; each API server can always read each Secret (Site.readsAll).
func TestEncryption(t *testing.T) {
	planes := Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}}
	prints(t, slices.Concat(planes, Sequence{
		{Name: reconfigureEncrypt, Host: 1}, {Name: reconfigureKey, Host: 1, Again: true}, {Name: reconfigureEncrypt, Host: 1}, {Name: reconfigureNode, Host: 2, Again: true},
		{Name: reconfigureEncrypt, Host: 1, Again: true}, {Name: "join --control-plane", Host: 3}, {Name: reconfigureNode, Host: 2, Again: true},
		{Name: reconfigureUndo, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: reconfigureNode, Host: 3}, {Name: reconfigureWide, Host: 1},
	}), "encryption of Secrets: [^=]*which the others cannot read yet", "key of Secrets, and again: <nil>", "encryption of Secrets: [^=]*have not followed the last change: host2|encryption of Secrets: [^=]*may not read what the next one writes: host2",
		"node, and again: <nil>", "encryption of Secrets, and again: <nil>", "join --control-plane: <nil>", "node, and again: <nil>", "undo: <nil>", "node: <nil>", "node: <nil>",
		"everything: [^=]*is removed, and data that was written with it is left: /registry/secrets/")
	for n := 1; n < 60; n += 14 {
		prints(t, Sequence{{Name: "init", Host: 1}, {Name: reconfigureKey, Host: 1, Crash: n}, {Name: reconfigureEncrypt, Host: 1, Crash: n}, {Name: reconfigureUndo, Host: 1, Crash: n}}, "undo[^=]*: <nil>")
	}
}

// TestFormerRecords: undo of a change whose record a former build has written gives back every byte (Site.check), also if another
// command has written records since, or if it was interrupted.
func TestFormerRecords(t *testing.T) {
	changed := Sequence{{Name: "init", Host: 1, File: 1}, {Name: "upgrade apply", Host: 1, File: 2}, {Name: reconfigureWide, Host: 1, File: 2}, {Name: formerRecords, Host: 1}}
	undone := []string{"reconfigure undo[^=]*: <nil>", "upgrade undo[^=]*: <nil>"}
	for n := 0; n < 40; n += 9 {
		prints(t, slices.Concat(changed, Sequence{{Name: reconfigureUndo, Host: 1, Crash: n}, {Name: formerRecords, Host: 1}, {Name: "upgrade undo", Host: 1, Crash: n}}), undone...)
	}
	prints(t, slices.Concat(changed, Sequence{{Name: reconfigureLittle, Host: 1, File: 2, Crash: 20, Left: true}, {Name: formerRecords, Host: 1}, {Name: reconfigureUndo, Host: 1}, {Name: "upgrade undo", Host: 1}}), undone...)
}

// TestHandover: the address of the endpoint moves between the control planes while commands run, which go on or can be repeated.
func TestHandover(t *testing.T) {
	moves := func(c Command) Command {
		for i := range 8 {
			c.Meanwhile = append(c.Meanwhile, Command{Name: endpointMoves, Host: i%3 + 1, Delay: 1 + 3*i})
		}
		return c
	}
	list := Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}}
	for _, c := range (Sequence{{Name: "join --control-plane", Host: 3}, {Name: "join", Host: 4}, {Name: "upgrade apply", Host: 1, File: 1}, {Name: "upgrade node", Host: 2, File: 1}, {Name: "upgrade node", Host: 4, File: 1}, {Name: nodeRemove, Host: 1, Target: 4}}) {
		list = append(list, moves(c))
	}
	prints(t, list)
}

// TestUserPod: a static pod of the user stays (Site.keeps).
func TestUserPod(t *testing.T) {
	prints(t, Sequence{
		{Name: "init", Host: 1}, {Name: "join", Host: 2}, {Name: userPod, Host: 1}, {Name: userPod, Host: 2}, {Name: reconfigureWide, Host: 1}, {Name: "join", Host: 2},
		{Name: "upgrade apply", Host: 1, File: 1}, {Name: "upgrade node", Host: 2, File: 1, Again: true}, {Name: "upgrade undo", Host: 2}, {Name: "reset", Host: 2, Again: true}, {Name: nodeRemove, Host: 1, Target: 2}, {Name: "join", Host: 2},
	}, "upgrade node, and again: <nil>", "upgrade undo: <nil>", "reset, and again: <nil>", "join: <nil>")
}

// TestClaimedAddress: what a kubelet reports as its address does not decide whose member of etcd is removed.
func TestClaimedAddress(t *testing.T) {
	// The join of a control plane is cut after it has added its member, which has no name yet.
	const manifest = "/etc/kubernetes/manifests/etcd.yaml"
	prints(t, Sequence{
		{Name: "init", Host: 1}, {Name: "join", Host: 2}, {Name: claimAddress, Host: 2, Target: 3}, {Name: "join --control-plane, interrupted", Host: 3, Before: manifest},
		{Name: nodeRemove, Host: 1, Target: 2}, {Name: "join --control-plane", Host: 3},
	}, "node remove host2: <nil>", "join --control-plane: <nil>")
}

// TestReconfigure: a configuration is changed on all hosts, and undone on all of them.
func TestReconfigure(t *testing.T) {
	files := bundles(t)
	for _, list := range []Sequence{
		{
			{Name: "init", Host: 1}, {Name: reconfigureWide, Host: 1, Again: true}, {Name: reconfigureUndo, Host: 1}, {Name: reconfigureBroken, Host: 1},
			{Name: reconfigureLittle, Host: 1, Again: true}, {Name: reconfigureWide, Host: 1}, {Name: "upgrade apply", Host: 1, File: 1},
		},
		{
			{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join --control-plane", Host: 3}, {Name: "join", Host: 4},
			{Name: reconfigureWide, Host: 1, Again: true}, {Name: reconfigureNode, Host: 2, Again: true}, {Name: reconfigureNode, Host: 3, Again: true}, {Name: reconfigureNode, Host: 4, Again: true},
			{Name: reconfigureUndo, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: reconfigureNode, Host: 3}, {Name: reconfigureNode, Host: 4},
			{Name: reconfigureWide, Host: 2, Meanwhile: []Command{{Name: reconfigureNode, Host: 3, Delay: 2}, {Name: renewAll, Host: 2, Delay: 5}}},
		},
		{ // a worker has images, too
			{Name: "init", Host: 1}, {Name: "join", Host: 4},
			{Name: reconfigureImages, Host: 1, Again: true}, {Name: reconfigureNode, Host: 4, Again: true}, {Name: reconfigureUndo, Host: 1}, {Name: reconfigureNode, Host: 4, Again: true},
		},
	} {
		site, err := play(t, files, list)
		if err != nil {
			t.Fatalf("%s\n\nviolation: %v", list, err)
		}
		t.Log(site.report.String(), strings.Join(site.log, "\n"))
	}
}

// TestAddOnsFollow: CoreDNS and kube-proxy wait for the nodes that have no images with the new names yet. A node lists only some of
// its images, and these nodes none: that they follow the reconfiguration is enough.
func TestAddOnsFollow(t *testing.T) {
	const planes, workers = "these control planes are upgraded: host2", "these nodes have its image: host4"
	for command, want := range map[string][]string{
		reconfigureImages:   {"coredns: " + planes, "kube-proxy: " + planes, "coredns: " + workers, "kube-proxy: " + workers},
		reconfigureDNSImage: {"coredns: these nodes have its image: host2, host4", "coredns: " + workers},
	} {
		site, err := play(t, bundles(t), Sequence{
			{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join", Host: 4},
			{Name: command, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: command, Host: 1}, {Name: reconfigureNode, Host: 4, Again: true}, {Name: command, Host: 1, Again: true},
		})
		if err != nil {
			t.Error(err)
		}
		out := site.report.String()
		var waits []string
		for _, m := range regexp.MustCompile(`(coredns|kube-proxy) is postponed until (these [a-z ]+: [a-z0-9, ]+)`).FindAllStringSubmatch(out, -1) {
			waits = append(waits, m[1]+": "+m[2])
		}
		if !slices.Equal(waits, want) {
			t.Errorf("%s: waits %q, want %q:\n%s", command, waits, want, out)
		}
	}
}

// TestUndoOfOvertaken: undo never brings back an older configuration than the cluster has, and a node counts as one that follows a
// change only while it has it.
func TestUndoOfOvertaken(t *testing.T) {
	planes := Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}}
	const overtaken = "reconfigure undo: preflight: the cluster was reconfigured since this change"
	prints(t, slices.Concat(planes, Sequence{
		{Name: reconfigureWide, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: reconfigureUndo, Host: 2}, {Name: reconfigureLittle, Host: 2}, {Name: reconfigureNode, Host: 2}, {Name: reconfigureLittle, Host: 2},
	}), "undo: <nil>", "reconfigure a little: [^=]*this control plane has not followed", "reconfigure node: <nil>", "reconfigure a little: <nil>")
	// The record of a follower, and the record of an earlier change. When the later change is undone, the earlier one can be.
	prints(t, slices.Concat(planes, Sequence{
		{Name: reconfigureWide, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: reconfigureLittle, Host: 1}, {Name: reconfigureUndo, Host: 2},
		{Name: reconfigureNode, Host: 2}, {Name: reconfigureWide, Host: 2}, {Name: reconfigureUndo, Host: 1}, {Name: reconfigureUndo, Host: 2}, {Name: reconfigureNode, Host: 1},
	}), overtaken, "reconfigure everything: <nil>", overtaken, "undo: <nil>", "reconfigure node: <nil>")
	prints(t, slices.Concat(planes, Sequence{
		{Name: reconfigureWide, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: reconfigureLittle, Host: 2}, {Name: reconfigureUndo, Host: 1}, {Name: reconfigureUndo, Host: 2}, {Name: reconfigureUndo, Host: 1},
	}), overtaken, "undo: <nil>", "undo: <nil>")
	prints(t, slices.Concat(planes, Sequence{
		{Name: reconfigureWide, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: reconfigureProxy, Host: 2, Again: true}, {Name: reconfigureUndo, Host: 1}, {Name: reconfigureUndo, Host: 2}, {Name: reconfigureUndo, Host: 1},
	}), "reconfigure kube-proxy, and again: <nil>", overtaken, "undo: <nil>", "undo: <nil>")
}

// TestUndoKilled: an undo that is interrupted while it restores what the cluster stores does not lose which names certificates had.
func TestUndoKilled(t *testing.T) {
	for n := 18; n < 32; n++ {
		prints(t, Sequence{{Name: "init", Host: 1}, {Name: reconfigureWide, Host: 1}, {Name: reconfigureUndo, Host: 1, Crash: n}})
	}
}

// TestWrongClock: the API server runs with the files that were written, also if their times are older than its container.
func TestWrongClock(t *testing.T) {
	prints(t, Sequence{{Name: "init", Host: 1}, {Name: reconfigureWide, Host: 1}, {Name: reconfigureFile, Host: 1}, {Name: reconfigureUndo, Host: 1}},
		"by a wrong clock: <nil>", "undo: <nil>")
	for n := 1; n < 40; n += 6 {
		prints(t, Sequence{{Name: "init", Host: 1}, {Name: reconfigureWide, Host: 1}, {Name: reconfigureFile, Host: 1, Crash: n}, {Name: reconfigureUndo, Host: 1, Crash: n}})
	}
}

// TestRepeat: a repeated run of a finished change writes a given file that is missing. If it fails, nothing is undone.
func TestRepeat(t *testing.T) {
	prints(t, Sequence{
		{Name: "init", Host: 1}, {Name: reconfigureWide, Host: 1}, {Name: removePolicy, Host: 1}, {Name: reconfigureWide, Host: 1, Again: true},
	}, "reconfigure everything: <nil>", "reconfigure everything, and again: <nil>")
	prints(t, Sequence{
		{Name: "init", Host: 1}, {Name: reconfigureWide, Host: 1}, {Name: removePolicy, Host: 1},
		{Name: reconfigureWide, Host: 1, Meanwhile: []Command{{Name: "the API server is lost", Host: 1, Delay: 1}}}, {Name: reconfigureWide, Host: 1, Days: 1},
	}, "reconfigure everything: <nil>", "reconfigure everything; 1s later .*: replacing kube-apiserver: [^=]*hint: [^=]*to continue, run the same command again; to undo it: ./install reconfigure undo", "reconfigure everything, 1 days later: <nil>")
}

// TestKeptImages: another name of an image does not remove what undo of the last upgrade needs.
func TestKeptImages(t *testing.T) {
	prints(t, Sequence{{Name: "init", Host: 1}, {Name: "upgrade apply", Host: 1, File: 1}, {Name: reconfigureImages, Host: 1, File: 1}}, "reconfigure the names of images: <nil>")
}

// prints runs a sequence, and fails if its commands do not print the patterns in this order.
func prints(t *testing.T, list Sequence, want ...string) {
	t.Helper()
	site, err := play(t, bundles(t), list)
	if err != nil {
		t.Fatalf("%s\n\nviolation: %v", list, err)
	}
	rest := site.report.String()
	for _, one := range want {
		at := regexp.MustCompile(one).FindStringIndex(rest)
		if at == nil {
			t.Fatalf("%s\n\nit does not print %q:\n%s", list, one, site.report.String()+strings.Join(site.log, "\n"))
		}
		rest = rest[at[1]:]
	}
}

// TestRestore: without an edit, there is nothing to restore. An edit is not replaced before the user asks for it, and a component that
// a change does not concern keeps its edit.
func TestRestore(t *testing.T) {
	playAll(t, []printed{
		{Sequence{
			{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join", Host: 3},
			{Name: restoreEdits, Host: 1}, {Name: restoreEdits, Host: 2}, {Name: restoreEditsNode, Host: 2}, {Name: restoreEditsNode, Host: 3},
		}, []string{"reconfigure --restore: <nil> \\(after [^ ]*, 0 changes\\)", "reconfigure --restore: <nil> \\(after [^ ]*, 0 changes\\)", "node --restore: <nil> \\(after [^ ]*, 0 changes\\)", "node --restore: <nil> \\(after [^ ]*, 0 changes\\)"}},
		{Sequence{
			{Name: "init", Host: 1}, {Name: editFlag, Host: 1}, {Name: reconfigureLittle, Host: 1}, {Name: restoreEdits, Host: 1, Again: true}, {Name: reconfigureLittle, Host: 1, Again: true},
		}, []string{"these files were edited since Airlift wrote them, and the edits would be lost: /etc/kubernetes/manifests/kube-scheduler.yaml", "--restore, and again: <nil>", "reconfigure a little, and again: <nil>"}},
		{Sequence{
			{Name: "init", Host: 1}, {Name: editFlags, Host: 1}, {Name: reconfigureLittle, Host: 1, Again: true}, {Name: reconfigureUndo, Host: 1}, {Name: restoreEdits, Host: 1, Again: true},
		}, []string{"reconfigure a little, and again: <nil>", "undo: <nil>", "--restore, and again: <nil>"}},
		// A comment is no edit.
		{Sequence{{Name: "init", Host: 1}, {Name: editComment, Host: 1}, {Name: showDrift, Host: 1}, {Name: reconfigureLittle, Host: 1, Again: true}}, []string{"drift:\\.", "reconfigure a little, and again: <nil>"}},
	})
}

// TestDrift: status shows what was edited by hand, with what keeps it, and nothing else. The edits are dropped, or kept by documents
// without a restart.
func TestDrift(t *testing.T) {
	const (
		lost    = "the edits would be lost: "
		flags   = "kubeadm-flags.env edited \\(InitConfiguration.nodeRegistration.kubeletExtraArgs: ./install reconfigure node --config FILE\\)\\."
		kubelet = "config.yaml edited \\(KubeletConfiguration.maxPods \\([^)]*\\), or for this node alone /var/lib/kubelet/instance-config.yaml\\) " + flags
		edited  = "drift: kube-apiserver.yaml edited \\(ClusterConfiguration.apiServer.extraArgs \\([^)]*\\)\\) kube-scheduler.yaml edited \\(ClusterConfiguration.scheduler.extraArgs \\([^)]*\\)\\) " + kubelet
	)
	edit := Sequence{{Name: "init", Host: 1}, {Name: editFlag, Host: 1}, {Name: editFlags, Host: 1}, {Name: editKubelet, Host: 1}, {Name: showDrift, Host: 1}}
	playAll(t, []printed{
		{slices.Concat(Sequence{{Name: "init", Host: 1}, {Name: showDrift, Host: 1}}, edit[1:], Sequence{
			{Name: keepEdits, Host: 1, Again: true}, {Name: showDrift, Host: 1}, {Name: reconfigureUndo, Host: 1}, {Name: showDrift, Host: 1},
			{Name: keepEdits, Host: 1}, {Name: reconfigureLittle, Host: 1, Again: true}, {Name: restoreEdits, Host: 1, Again: true}, {Name: "upgrade apply", Host: 1, File: 1}, {Name: showDrift, Host: 1, File: 1},
			{Name: showDrift, Host: 1},
		}), []string{
			"drift:\\.", edited, "with what was edited, and again: <nil>", "drift:\\.", "undo: <nil>", edited,
			"with what was edited: <nil>", "reconfigure a little, and again: <nil>", "--restore, and again: <nil> \\(after [^ ]*, 0 changes\\)", "upgrade apply: <nil>", "drift:\\.", "drift: unknown: ",
		}},
		{slices.Concat(edit, Sequence{{Name: restoreEdits, Host: 1, Again: true}, {Name: showDrift, Host: 1}}), []string{edited, "--restore, and again: <nil>", "drift: " + flags}},
		{Sequence{{Name: "init", Host: 1}, {Name: editImage, Host: 1}, {Name: editFlags, Host: 1}, {Name: reconfigureLittle, Host: 1}, {Name: restoreEdits, Host: 1}, {Name: showDrift, Host: 1}},
			[]string{lost + "/etc/kubernetes/manifests/kube-scheduler.yaml\n[^=]*use a patch with --patches DIRECTORY", "--restore: <nil>", "drift:\\."}},
		{slices.Concat(Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: "join", Host: 3}, {Name: editFlags, Host: 2}}, edit[1:], Sequence{
			{Name: keepEdits, Host: 1}, {Name: showDrift, Host: 2}, {Name: reconfigureNode, Host: 2, Again: true}, {Name: reconfigureNode, Host: 3}, {Name: showDrift, Host: 2},
			{Name: reconfigureWide, Host: 1}, {Name: showDrift, Host: 2}, {Name: showDrift, Host: 3}, {Name: reconfigureNode, Host: 2}, {Name: reconfigureNode, Host: 3}, {Name: showDrift, Host: 3},
			{Name: editKubelet, Host: 3}, {Name: showDrift, Host: 3}, {Name: reconfigureNode, Host: 3}, {Name: restoreEditsNode, Host: 3, Again: true}, {Name: showDrift, Host: 3}, {Name: keepFlags, Host: 3, Again: true}, {Name: showDrift, Host: 3},
		}), []string{
			"with what was edited: <nil>", "drift: kube-scheduler.yaml behind config.yaml behind\\.", "reconfigure node, and again: <nil>", "reconfigure node: <nil>", "drift:\\.",
			"reconfigure everything: <nil>", "drift: policy.yaml behind kube-apiserver.yaml behind kube-scheduler.yaml behind config.yaml behind\\.", "drift: config.yaml behind\\.", "drift:\\.",
			"drift: " + kubelet, lost + "/var/lib/kubelet/config.yaml\n[^=]*use KubeletConfiguration.maxPods ", "node --restore, and again: <nil>", "drift: " + flags, "edited flags, and again: <nil>", "drift:\\.",
		}},
		{Sequence{
			{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}, {Name: reconfigureWide, Host: 1}, {Name: reconfigureNode, Host: 2},
			{Name: editPolicy, Host: 1}, {Name: showDrift, Host: 1}, {Name: reconfigureWide, Host: 1}, {Name: keepPolicy, Host: 1, Again: true}, {Name: showDrift, Host: 1}, {Name: showDrift, Host: 2},
			{Name: reconfigureNode, Host: 2}, {Name: showDrift, Host: 2}, {Name: reconfigureUndo, Host: 1}, {Name: showDrift, Host: 1}, {Name: restoreEdits, Host: 1}, {Name: showDrift, Host: 1},
			{Name: editDropIn, Host: 2}, {Name: editFixed, Host: 2}, {Name: showDrift, Host: 2}, {Name: restoreEditsNode, Host: 2, Again: true}, {Name: showDrift, Host: 2},
		}, []string{
			"drift: policy.yaml edited \\(--file /etc/kubernetes/audit/policy.yaml=/etc/kubernetes/audit/policy.yaml\\)\\.", lost + "/etc/kubernetes/audit/policy.yaml\n[^=]*use --file ", "audit policy, and again: <nil>",
			"drift:\\.", "drift: policy.yaml behind\\.", "node: <nil>", "drift:\\.", "undo: <nil>", "drift: policy.yaml edited", "--restore: <nil>", "drift:\\.",
			"drift: policy.yaml behind config.yaml edited \\([^\n]* 10-kubeadm.conf edited \\(a drop-in of your own, such as [^)]*\\)\\.", "--restore, and again: <nil>", "drift:\\.",
		}},
	})
}

// A printed is a sequence, with patterns in what its commands printed, in this order.
type printed struct {
	list Sequence
	want []string
}

func playAll(t *testing.T, cases []printed) {
	for _, c := range cases {
		prints(t, c.list, c.want...)
	}
}

// TestReconfigureKilled kills a change of the configuration, or its undo, before one of its changes, and then runs it again.
// Then undo restores all of it. MODEL_KILLS=1 kills before each of them.
func TestReconfigureKilled(t *testing.T) {
	files := bundles(t)
	step := 13
	if os.Getenv("MODEL_KILLS") != "" {
		step = 1
	}
	for _, command := range []string{reconfigureWide, reconfigureUndo, reconfigureBroken} {
		for n := 1; n < 90; n += step {
			list := Sequence{{Name: "init", Host: 1}, {Name: command, Host: 1, Crash: n}}
			switch command {
			case reconfigureUndo:
				list = slices.Insert(list, 1, Command{Name: reconfigureWide, Host: 1})
			case reconfigureWide:
				list = append(list, Command{Name: reconfigureUndo, Host: 1})
			}
			site, err := play(t, files, list)
			if err != nil {
				t.Fatalf("%s\n\nviolation: %v", list, err)
			}
			if site.Crashes == 0 {
				t.Logf("%s: killed before %d changes", command, n-1)
				break
			}
		}
	}
}

// TestEditedPause: a pause image that was edited by hand neither stops a change that does not concern it, also one that was
// interrupted or that the node follows, nor is it lost by that, and containerd does not restart (Site.run). A change of the names of
// images does not replace it before the user asks for it.
func TestEditedPause(t *testing.T) {
	files := bundles(t)
	edited := Sequence{{Name: "init", Host: 1}, {Name: editPause, Host: 1}}
	prints(t, slices.Concat(edited, Sequence{{Name: showDrift, Host: 1}, {Name: reconfigureImages, Host: 1}, {Name: reconfigureWide, Host: 1, Again: true}, {Name: reconfigureUndo, Host: 1}, {Name: showDrift, Host: 1}}),
		"drift: config.toml edited\\.", "names of images: [^=]*the edits would be lost: /etc/containerd/config.toml",
		"everything, and again: <nil>", "undo: <nil>", "drift: config.toml edited\\.")
	for _, join := range []string{"join", "join --control-plane"} {
		prints(t, Sequence{{Name: "init", Host: 1}, {Name: join, Host: 2}, {Name: editPause, Host: 2}, {Name: reconfigureWide, Host: 1}, {Name: reconfigureNode, Host: 2, Again: true}, {Name: showDrift, Host: 2},
			{Name: reconfigureImages, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: restoreEditsNode, Host: 2, Again: true}, {Name: showDrift, Host: 2}},
			"everything: <nil>", "node, and again: <nil>", "drift: config.toml edited\\.", "names of images: <nil>", "node: [^=]*the edits would be lost: /etc/containerd/config.toml", "node --restore, and again: <nil>", "drift:\\.")
	}
	for n := 1; ; n += 4 {
		list := slices.Concat(edited, Sequence{{Name: reconfigureLittle, Host: 1, Crash: n}, {Name: showDrift, Host: 1}})
		site, err := play(t, files, list)
		if err != nil {
			t.Fatalf("%s\n\nviolation: %v", list, err)
		}
		if out := site.report.String(); !strings.Contains(out, reconfigureLittle+": <nil>") && site.Crashes > 0 || !strings.Contains(out, "drift: config.toml edited.") {
			t.Fatalf("%s\n\nit does not succeed, or the pause image is lost:\n%s", list, out)
		}
		if site.Crashes == 0 {
			break
		}
	}
}

// TestVariablesAreNotShown: status and plans show which environment variables were edited by hand, and not their values: neither the new
// ones nor the values that the stored configuration has.
func TestVariablesAreNotShown(t *testing.T) {
	files := bundles(t)
	rapid.Check(t, func(rt *rapid.T) {
		var secrets, names []string
		variables := func(first int) (lines string) {
			for i := range rapid.IntRange(1, 5).Draw(rt, "variables") {
				secret := rapid.StringMatching(`[a-z0-9]{16,24}`).Draw(rt, "secret")
				name := rapid.SampledFrom([]string{"PASSWORD", "TOKEN", "ETCD_CONF", "SITE", "x"}).Draw(rt, "name") + fmt.Sprint(first+i)
				form := rapid.SampledFrom([]string{"%s", "-%s", "--v=%s", "user=%s", "http://user:%s@proxy.example:3128", "{\"key\": \"%s\"}", "a: %s", "-----BEGIN KEY-----\n%s\n", " %s", "$(%s)", "true %s"}).Draw(rt, "form")
				secrets, names = append(secrets, secret), append(names, name)
				lines += fmt.Sprintf("    - name: %s\n      value: %q\n", name, fmt.Sprintf(form, secret))
			}
			return lines
		}
		first := variables(0)
		list := Sequence{{Name: "init", Host: 1}, {Name: editVariables, Host: 1, Text: first}, {Name: showDrift, Host: 1}, {Name: showPlans, Host: 1}}
		kept := rapid.Bool().Draw(rt, "kept")
		if kept {
			list = append(list, Command{Name: keepVariables, Host: 1, Text: first}, Command{Name: editVariables, Host: 1, Text: variables(10)}, Command{Name: showDrift, Host: 1}, Command{Name: showPlans, Host: 1})
		}
		site, err := play(t, files, list)
		if err != nil {
			rt.Fatal(err)
		}
		out := site.report.String()
		if !strings.Contains(out, "plans: <nil>") || kept && !strings.Contains(out, keepVariables+": <nil>") {
			rt.Fatal(out)
		}
		for i, secret := range secrets {
			if strings.Contains(out, secret) {
				rt.Errorf("the value of %s is shown: %s", names[i], out[strings.LastIndex(out, "==="):])
			}
			if strings.Count(out, "- name: "+names[i]+"\\n") == 0 {
				rt.Errorf("%s is not shown: %s", names[i], out[strings.LastIndex(out, "==="):])
			}
		}
	})
}

// TestEditsKilled kills a run that keeps or drops what was edited by hand, before one of its changes. It can be repeated: the second
// run succeeds, and leaves no drift (Site.run). MODEL_KILLS=1 kills before each of them.
func TestEditsKilled(t *testing.T) {
	files := bundles(t)
	step := 3
	if os.Getenv("MODEL_KILLS") != "" {
		step = 1
	}
	edits := func(names ...string) Sequence {
		list := Sequence{{Name: "init", Host: 1}, {Name: reconfigureWide, Host: 1}}
		for _, name := range names {
			list = append(list, Command{Name: name, Host: 1})
		}
		return list
	}
	worker := Sequence{{Name: "init", Host: 1}, {Name: "join", Host: 2}}
	for _, c := range []struct {
		command string
		edits   Sequence
	}{
		{keepEdits, Sequence{{Name: "init", Host: 1}, {Name: editFlag, Host: 1}, {Name: editFlags, Host: 1}, {Name: editKubelet, Host: 1}}},
		{restoreEdits, edits(editPolicy, editFlags, editFixed)},
		{restoreEditsNode, slices.Concat(worker, Sequence{{Name: editFixed, Host: 2}, {Name: editDropIn, Host: 2}})},
	} {
		for n, crashes := 1, 0; ; n += step {
			last := Command{Name: c.command, Host: c.edits.hosts(), Again: true}
			repeated := last.String() + ": <nil>"
			last.Crash, last.Full = n, n/step%2 == 1 // with a full disk, the host does not boot
			list := append(slices.Clone(c.edits), last)
			site, err := play(t, files, list)
			if err != nil {
				t.Fatalf("%s\n\nviolation: %v", list, err)
			}
			if out := site.report.String(); site.Crashes > 0 && !strings.Contains(out, repeated) {
				t.Fatalf("%s\n\nit does not succeed:\n%s", list, out)
			}
			if site.Crashes == 0 {
				t.Logf("%s: killed %d times before %d changes", c.command, crashes, n-1)
				if crashes == 0 {
					t.Fatalf("%s\n\nit changes nothing:\n%s", list, site.report.String())
				}
				break
			}
			crashes++
		}
	}
}

func TestFound(t *testing.T) {
	files := bundles(t)
	for _, f := range found {
		t.Run(f.name, func(t *testing.T) {
			site, err := play(t, files, f.sequence)
			if err != nil {
				t.Fatalf("%s\n\nviolation: %v", f.sequence, err)
			}
			t.Log(site.report.String(), strings.Join(site.log, "\n"))
		})
	}
}

// imageNames returns the names of images of all hosts and of the cluster: of static pods, of containerd's pause image, of the stored
// configuration and of add-ons.
func (s *Site) imageNames() map[string]string {
	names := map[string]string{}
	add := func(where, text string) {
		names[where] = strings.Join(imageName.FindAllString(text, -1), "\n")
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, h := range s.hosts {
		for _, component := range pods.StaticPodOrder {
			add(h.Name+" "+component, h.read("etc/kubernetes/manifests/"+component+".yaml"))
		}
		add(h.Name+" containerd", h.read(runtimeConfig))
	}
	for _, object := range []string{"configmaps/kube-system/kubeadm-config", "deployments/kube-system/coredns", "daemonsets/kube-system/kube-proxy"} {
		add(object, s.api().data[object])
	}
	return names
}

var imageName = regexp.MustCompile(`imageRepository: [^"\\]*|[a-z.]+[a-z0-9./-]*/(etcd|kube-[a-z-]+|coredns|pause):v?[0-9.-]+`)

// TestUndoOfImages: undo of other names of images restores the name of each image, on this node and in the cluster.
func TestUndoOfImages(t *testing.T) {
	files := bundles(t)
	for _, command := range []string{reconfigureImages, reconfigureDNSImage} {
		dir, err := os.MkdirTemp("/dev/shm", "model-")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		synctest.Test(t, func(t *testing.T) {
			site, err := NewSite(dir, 2, files.bundles, files.more)
			if err != nil {
				t.Fatal(err)
			}
			defer site.Close()
			run := func(list Sequence) map[string]string {
				if err := site.Run(list); err != nil {
					t.Fatal(err)
				}
				return site.imageNames()
			}
			before := run(Sequence{{Name: "init", Host: 1}, {Name: "join --control-plane", Host: 2}})
			for where, list := range before {
				if list == "" {
					t.Fatalf("%s has no name of an image", where)
				}
			}
			changed := run(Sequence{{Name: command, Host: 1}, {Name: reconfigureNode, Host: 2}, {Name: command, Host: 1}})
			for where, list := range changed {
				if renames := command == reconfigureImages || strings.Contains(where, "coredns") || strings.Contains(where, "configmap"); (list != before[where]) != renames {
					t.Errorf("%s: %s has %q, before %q", command, where, list, before[where])
				}
			}
			after := run(Sequence{{Name: reconfigureUndo, Host: 1}, {Name: reconfigureNode, Host: 2}})
			for where, list := range after {
				if list != before[where] {
					t.Errorf("%s: after undo, %s has %q, before %q", command, where, list, before[where])
				}
			}
		})
	}
}
