package host_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"pgregory.net/rapid"

	"airlift/installer/host"
	"airlift/installer/host/ledger"
	"airlift/installer/host/uninstall"
	"airlift/internal/fault"
	"airlift/scripts/fixtures/rig"
	_ "airlift/scripts/fixtures/seed"
)

// lines returns the lines of a file of accounts by names, without the order.
func lines(t *rapid.T, h *host.Host, file string) (list []string) {
	data, err := h.ReadIfExists(file)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(data)) {
		list = append(list, strings.TrimSpace(line))
	}
	slices.Sort(list)
	return list
}

// TestAccount: systemd-sysusers creates what is missing with the numbers that the plan shows, what is there keeps its numbers, a run
// that is killed anywhere is continued, and reset removes what was created and nothing else.
func TestAccount(t *testing.T) {
	rig.Root(t)
	for _, tool := range []string{"systemd-sysusers", "userdel", "groupdel", "groupadd"} {
		rig.Tool(t, tool)
	}
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "accounts")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		ids := func(label string) []int {
			return rapid.SliceOfDistinct(rapid.OneOf(rapid.IntRange(990, 999), rapid.IntRange(1, 1100)), rapid.ID[int]).Draw(t, label)
		}
		passwd, group := "root:x:0:0:root:/root:/bin/sh\n", "root:x:0:\n"
		usedUsers, usedGroups := ids("users"), ids("groups")
		for _, id := range usedUsers {
			passwd += fmt.Sprintf("user%d:x:%d:%d::/:/bin/sh\n", id, id, id)
		}
		for _, id := range usedGroups {
			group += fmt.Sprintf("group%d:x:%d:\n", id, id)
		}
		hasUser, hasGroup := rapid.Bool().Draw(t, "a user"), rapid.Bool().Draw(t, "a group")
		if hasUser {
			passwd += "etcd:x:2001:2003:of a package:/var/lib/etcd:/sbin/nologin\n"
		}
		if hasGroup {
			group += "etcd:x:2002:\n"
		}
		write := func(file, text string) {
			name := filepath.Join(dir, file)
			if err := errors.Join(os.MkdirAll(filepath.Dir(name), 0o755), os.WriteFile(name, []byte(text), 0o644)); err != nil {
				t.Fatal(err)
			}
		}
		if rapid.Bool().Draw(t, "userdel removes the group") {
			write("etc/login.defs", "USERGROUPS_ENAB yes\n")
		}
		write("etc/passwd", passwd)
		write("etc/group", group)
		open := func() *host.Host {
			h, err := host.Open(dir)
			if err != nil {
				t.Fatal(err)
			}
			return h
		}
		h := open()
		usersBefore, groupsBefore := lines(t, h, "/etc/passwd"), lines(t, h, "/etc/group")
		planned, user, is, err := h.FindAccount("etcd")
		if err != nil || user != hasUser || is != hasGroup {
			t.Fatal(planned, user, is, err)
		}
		if hasUser && planned.UID != 2001 || hasGroup && planned.GID != 2002 {
			t.Errorf("another number than the host's: %v", planned)
		}
		if !hasUser && (slices.Contains(usedUsers, planned.UID) || planned.UID > 999) || !hasGroup && (slices.Contains(usedGroups, planned.GID) || planned.GID > 999) {
			t.Errorf("the number is in use: %v", planned)
		}
		killed := errors.New("killed")
		left := rapid.IntRange(0, 4).Draw(t, "changes before the first run is killed")
		h.GuardChanges(func(_ string, do func() error) error {
			if left--; left < 0 {
				return killed
			}
			return do()
		})
		if err := h.CreateAccount(t.Context(), "etcd", "etcd"); err != nil && !errors.Is(err, killed) {
			t.Fatal(err)
		}
		h = open()
		for range 2 {
			if err := h.CreateAccount(t.Context(), "etcd", "etcd"); err != nil {
				t.Fatal(err)
			}
		}
		got, user, is, err := h.FindAccount("etcd")
		if err != nil || !user || !is || got != planned {
			t.Errorf("%v, %t, %t, %v, planned %v", got, user, is, err, planned)
		}
		if _, recorded := h.Records().Find(ledger.File, host.AccountFile); recorded == (hasUser && hasGroup) {
			t.Errorf("%s is in the ledger: %t", host.AccountFile, recorded)
		}
		for range 2 {
			if note, err := h.RemoveAccount(t.Context(), "etcd"); err != nil || note != "" {
				t.Fatal(note, err)
			}
		}
		if users, groups := lines(t, h, "/etc/passwd"), lines(t, h, "/etc/group"); !slices.Equal(users, usersBefore) || !slices.Equal(groups, groupsBefore) {
			t.Errorf("after reset: %q, %q", users, groups)
		}
	})
}

// TestAccountElsewhere: a name that systemd-sysusers finds in LDAP is not enough, and a root with another name is refused.
func TestAccountElsewhere(t *testing.T) {
	bin := t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "systemd-sysusers"), []byte("#!/bin/sh\nexit 0\n"), 0o755); err != nil { // it does nothing, as for a user that exists
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+os.Getenv("PATH"))
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	if err := h.CreateAccount(t.Context(), "etcd", "etcd"); fault.ExitCode(err) != fault.Preflight || !strings.Contains(fault.Hint(err), "getent passwd etcd >>/etc/passwd") {
		t.Errorf("%v: %s", err, fault.Hint(err))
	}
	if h.Records().Wrote(host.AccountFile) {
		t.Error("the account counts as Airlift's, which the user copies from there")
	}
	t.Setenv("PATH", t.TempDir())
	if err := h.CreateAccount(t.Context(), "etcd", "etcd"); err == nil || !strings.Contains(fault.Hint(err), "useradd --system") {
		t.Errorf("without systemd-sysusers: %v: %s", err, fault.Hint(err))
	}
	if h.Records().Wrote(host.AccountFile) {
		t.Error("the account counts as Airlift's, which the user creates with the commands of the hint")
	}
	half := "#!/bin/sh\necho etcd:x:999: >>" + h.Path("/etc/group") + "\nexit 1\n" // it is killed after the group
	if err := errors.Join(os.MkdirAll(h.Path("/etc"), 0o755), os.WriteFile(filepath.Join(bin, "systemd-sysusers"), []byte(half), 0o755)); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin)
	if err := h.CreateAccount(t.Context(), "etcd", "etcd"); err == nil {
		t.Error("no error")
	}
	if text, err := h.ReadIfExists(host.AccountFile); err != nil || !strings.Contains(string(text), "\ng etcd 999\n") || strings.Contains(string(text), "\nu ") {
		t.Errorf("with the group only, it declares %q, %v", text, err)
	}
	if _, err := h.WriteFile("/etc/passwd", []byte("root:x:0:0::/:\netcd:x:0:0::/:\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	if _, _, _, err := h.FindAccount("etcd"); fault.ExitCode(err) != fault.Preflight {
		t.Errorf("a root with the name etcd: %v", err)
	}
}

// TestCopies: after every sequence of renewals, writes, restored files and lost copies, with runs that are killed and repeated, each copy
// is equal to its source and belongs to its account.
func TestCopies(t *testing.T) {
	rig.Root(t)
	rapid.Check(t, func(t *rapid.T) {
		dir, err := os.MkdirTemp("", "copies")
		if err != nil {
			t.Fatal(err)
		}
		defer os.RemoveAll(dir)
		account := host.Account{UID: 1234, GID: 2345}
		names := []string{"server.crt", "server.key", "ca.crt"}
		source := func(name string) string { return "/etc/kubernetes/pki/etcd/" + name }
		duplicate := func(name string) string { return "/etc/kubernetes/etcd/" + name }
		var h *host.Host
		open := func() {
			if h, err = host.Open(dir); err != nil {
				t.Fatal(err)
			}
		}
		must := func(err error) {
			if err != nil {
				t.Fatal(err)
			}
		}
		open()
		foreign := rapid.SampledFrom(names).Draw(t, "a file that another tool wrote")
		for _, name := range names {
			if name == foreign {
				must(os.MkdirAll(filepath.Dir(h.Path(source(name))), 0o755))
				must(os.WriteFile(h.Path(source(name)), []byte("first"), 0o600))
			} else {
				_, err := h.WriteFile(source(name), []byte("first"), 0o600)
				must(err)
			}
			must(h.WriteCopy(duplicate(name), source(name), account))
		}
		kept := h.Upgrades().Kept("previous")
		must(kept.Keep(source("server.crt")))
		killed := errors.New("killed")
		for i := range rapid.IntRange(1, 8).Draw(t, "steps") {
			name := rapid.SampledFrom(names).Draw(t, "file")
			data := []byte(fmt.Sprint("content ", i))
			act := map[string]func() error{
				"renew": func() error { return h.RenewFile(source(name), data, 0o600) },
				"write": func() error { _, err := h.WriteFile(source(name), data, 0o600); return err },
				"restore": func() error {
					name = "server.crt"
					_, err := h.Upgrades().Kept("previous").Restore(t.Context(), source(name))
					return err
				},
				"lose": func() error {
					must(os.RemoveAll(h.Path(duplicate(name))))
					return h.WriteCopy(duplicate(name), source(name), account) // what PrepareEtcd does
				},
			}[rapid.SampledFrom([]string{"renew", "write", "restore", "lose"}).Draw(t, "act")]
			left := rapid.IntRange(0, 6).Draw(t, "changes before the run is killed")
			h.GuardChanges(func(_ string, do func() error) error {
				if left--; left < 0 {
					return killed
				}
				return do()
			})
			if err := act(); err != nil && !errors.Is(err, killed) {
				t.Fatal(err)
			}
			open()
			must(act())
			for _, name := range names {
				want, err := os.ReadFile(h.Path(source(name)))
				must(err)
				is, err := os.ReadFile(h.Path(duplicate(name)))
				must(err)
				info, err := os.Stat(h.Path(duplicate(name)))
				must(err)
				original, err := os.Stat(h.Path(source(name)))
				must(err)
				if string(is) != string(want) || host.OwnerOf(info) != account || info.Mode().Perm() != 0o600 || host.OwnerOf(original) != (host.Account{}) {
					t.Fatalf("%s is %q of %v with %v, want %q", name, is, host.OwnerOf(info), info.Mode(), want)
				}
			}
		}
	})
}

// TestGiveData: no link leads to a file that gets another owner, other files next to the data keep their owner, and reset gives an existing
// directory back.
func TestGiveData(t *testing.T) {
	rig.Root(t)
	h, err := host.Open(t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Fatal(err)
		}
	}
	const data = "/var/lib/etcd"
	account := host.Account{UID: 1234, GID: 2345}
	outside := h.Path("/etc/secret")
	must(errors.Join(os.MkdirAll(h.Path(data), 0o755), os.MkdirAll(filepath.Dir(outside), 0o755), os.WriteFile(outside, nil, 0o600), os.Chown(h.Path(data), 7, 8)))
	must(h.Claim(ledger.Claim{Path: data, Contents: ledger.EtcdData}))
	must(h.GiveData(data, "member", account)) // before the first start
	must(errors.Join(os.MkdirAll(h.Path(data+"/member/wal"), 0o700), os.WriteFile(h.Path(data+"/member/wal/0.wal"), nil, 0o600),
		os.Symlink(outside, h.Path(data+"/member/link")), os.Symlink("/etc", h.Path(data+"/member/dir")), os.Mkdir(h.Path(data+"/lost+found"), 0o700)))
	for range 2 {
		must(h.GiveData(data, "member", account))
	}
	for file, want := range map[string]host.Account{data: account, data + "/member": account, data + "/member/wal/0.wal": account, data + "/member/link": account,
		"/etc/secret": {}, "/etc": {}, data + "/lost+found": {}} {
		if info, err := os.Lstat(h.Path(file)); err != nil || host.OwnerOf(info) != want {
			t.Errorf("%s belongs to %v, %v", file, host.OwnerOf(info), err)
		}
	}
	if info, err := os.Stat(h.Path(data)); err != nil || info.Mode().Perm() != 0o700 {
		t.Errorf("%v, %v", info.Mode(), err)
	}
	if e, ok := h.Records().Find(ledger.Contents, data); !ok || e.Owner == nil || *e.Owner != (ledger.Owner{UID: 7, GID: 8}) {
		t.Errorf("the ledger has %+v", e)
	}
	must(uninstall.RemoveState(t.Context(), h))
	if info, err := os.Stat(h.Path(data)); err != nil || host.OwnerOf(info) != (host.Account{UID: 7, GID: 8}) || info.Mode().Perm() != 0o755 {
		t.Errorf("after reset: %v with %v, %v", host.OwnerOf(info), info.Mode(), err)
	}
}

// TestResetKeepsTheRecordOfAnAccount: if the account cannot be removed, the next reset still knows it.
func TestResetKeepsTheRecordOfAnAccount(t *testing.T) {
	rig.Root(t)
	rig.Tool(t, "systemd-sysusers")
	h, err := host.Open(t.TempDir())
	if err == nil {
		err = h.CreateAccount(t.Context(), "etcd", "etcd")
	}
	if err != nil {
		t.Fatal(err)
	}
	path, bin := os.Getenv("PATH"), t.TempDir()
	if err := os.WriteFile(filepath.Join(bin, "userdel"), []byte("#!/bin/sh\necho user etcd is currently used by process 1 >&2\nexit 8\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	t.Setenv("PATH", bin+":"+path)
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err == nil || !strings.Contains(err.Error(), "used by process 1") {
		t.Errorf("%v", err)
	}
	if !h.Records().Wrote(host.AccountFile) {
		t.Error("the record is gone")
	}
	t.Setenv("PATH", path)
	if _, err := uninstall.RemoveInstalled(t.Context(), h); err != nil {
		t.Error(err)
	}
	if _, user, group, err := h.FindAccount("etcd"); err != nil || user || group {
		t.Error("the account exists", err)
	}
	if _, err := os.Stat(h.Path(host.AccountFile)); !os.IsNotExist(err) {
		t.Error(err)
	}
}
