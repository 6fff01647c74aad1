package host

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"syscall"

	"airlift/installer/host/ledger"
	"airlift/internal/childprocess"
	"airlift/internal/fault"
)

// AccountFile declares for systemd-sysusers the user and the group that Airlift created on this host. Reset removes what it declares.
const AccountFile = "/etc/sysusers.d/airlift-etcd.conf"

// EtcdAccount is the name of the user that runs etcd in a hardened cluster.
const EtcdAccount = "etcd"

// An Account is a user and the group of the same name, by number.
type Account struct{ UID, GID int }

// System accounts have these numbers by default on all distributions (SYS_UID_MIN and SYS_UID_MAX of login.defs).
const firstSystemID, lastSystemID = 100, 999

// FindAccount returns a user and the group of the same name in the host's own files. A missing one has the number that CreateAccount
// gives it.
func (h *Host) FindAccount(name string) (a Account, user, group bool, err error) {
	users, err := h.numbers("/etc/passwd")
	if err != nil {
		return a, false, false, err
	}
	groups, err := h.numbers("/etc/group")
	if err != nil {
		return a, false, false, err
	}
	a.UID, user = users[name]
	a.GID, group = groups[name]
	if user && a.UID == 0 || group && a.GID == 0 {
		return a, user, group, fault.New(fault.Preflight, "%s on this host is root: its number is 0", name).
			Hint("give the user and the group another number in /etc/passwd and /etc/group")
	}
	taken := map[int]bool{}
	for _, list := range []map[string]int{users, groups} {
		for _, id := range list {
			taken[id] = true
		}
	}
	free := lastSystemID
	for taken[free] {
		free--
	}
	if free < firstSystemID && !(user && group) {
		return a, user, group, fault.New(fault.Preflight, "no number from %d to %d is free for the user %s", firstSystemID, lastSystemID, name).
			Hint("create it with another number: groupadd --gid NUMBER " + name + " && useradd --uid NUMBER --gid " + name + " --no-create-home --shell /usr/sbin/nologin " + name)
	}
	if !user {
		a.UID = free
	}
	if !group {
		a.GID = free
	}
	return a, user, group, nil
}

// numbers returns the numbers in /etc/passwd or /etc/group by names. The first line of a name counts, as in libc.
func (h *Host) numbers(file string) (map[string]int, error) {
	data, err := h.ReadIfExists(file)
	if err != nil {
		return nil, err
	}
	list := map[string]int{}
	for line := range strings.Lines(string(data)) {
		fields := strings.Split(strings.TrimSpace(line), ":")
		if len(fields) < 3 {
			continue
		}
		id, err := strconv.Atoi(fields[2])
		if _, known := list[fields[0]]; err == nil && !known {
			list[fields[0]] = id
		}
	}
	return list, nil
}

// CreateAccount creates the missing part of a system account: without a password, a shell and a home.
func (h *Host) CreateAccount(ctx context.Context, name, comment string) error {
	want, user, group, err := h.FindAccount(name)
	if err != nil || user && group {
		return err
	}
	declared, err := h.declared(name)
	if err != nil {
		return err
	}
	createsUser, createsGroup := !user || slices.Contains(declared, "userdel"), !group || slices.Contains(declared, "groupdel")
	text, err := h.declareAccount(name, comment, want, createsUser, createsGroup)
	if err != nil {
		return err
	}
	args := []string{"-"}
	if h.Root != "/" {
		args = []string{"--root=" + string(h.Root), "-"}
	}
	cmd := childprocess.Command(ctx, "systemd-sysusers", args...)
	cmd.Stdin = strings.NewReader(text)
	var out []byte
	failed := h.Change("/etc/group", func() (err error) { // then it writes /etc/passwd
		out, err = cmd.CombinedOutput()
		return err
	})
	is, user, group, err := h.FindAccount(name)
	if err == nil && !(user && group) { // what is missing, the user of this host may create
		_, err = h.declareAccount(name, comment, is, user && createsUser, group && createsGroup)
	}
	switch {
	case failed != nil:
		return fault.New(fault.Failure, "creating the user and the group %s: systemd-sysusers: %w%s", name, failed, printed(out)).Hint(AddAccount(name))
	case err != nil:
		return err
	case !user || !group: // systemd-sysusers finds it in another directory
		return fault.New(fault.Preflight, "the user or the group %s is not in /etc/passwd or /etc/group, but in another directory of users, such as LDAP: a host must know it without its network", name).
			Hint("copy what is missing: getent passwd " + name + " >>/etc/passwd; getent group " + name + " >>/etc/group")
	case is != want:
		return fault.New(fault.Failure, "the user %s has the numbers %d and %d, because %d or %d are in use", name, is.UID, is.GID, want.UID, want.GID).
			Hint("run the same command again: it uses these numbers")
	}
	return nil
}

// declareAccount writes AccountFile, and returns its text. If Airlift creates neither the user nor the group, it removes the file.
func (h *Host) declareAccount(name, comment string, a Account, user, group bool) (text string, err error) {
	if !user && !group {
		return "", h.Remove(AccountFile)
	}
	text = "# Airlift created this account, and './install reset' removes it.\n"
	if group {
		text += fmt.Sprintf("g %s %d\n", name, a.GID)
	}
	if user {
		text += fmt.Sprintf("u %s %d \"%s\" / /usr/sbin/nologin\n", name, a.UID, comment)
	}
	_, err = h.WriteFile(AccountFile, []byte(text), 0o644)
	return text, err
}

// AddAccount are the commands with which a user creates what CreateAccount creates.
func AddAccount(name string) string {
	return "groupadd --system " + name + "; useradd --system --gid " + name + " --no-create-home --shell /usr/sbin/nologin " + name
}

func printed(out []byte) string {
	if out = bytes.TrimSpace(out); len(out) == 0 {
		return ""
	}
	return ": " + string(out)
}

// declared returns the commands that remove what AccountFile declares.
func (h *Host) declared(name string) (commands []string, err error) {
	if !h.Records().Wrote(AccountFile) {
		return nil, nil
	}
	data, err := h.ReadIfExists(AccountFile)
	for line := range strings.Lines(string(data)) {
		switch {
		case strings.HasPrefix(line, "u "+name+" "):
			commands = append([]string{"userdel"}, commands...) // before the group: it is its primary group
		case strings.HasPrefix(line, "g "+name+" "):
			commands = append(commands, "groupdel")
		}
	}
	return commands, err
}

// Exit codes of userdel and groupdel.
const (
	missingAccount = 6
	accountInUse   = 8
)

// RemoveAccount removes the account that CreateAccount created. note is what stays.
func (h *Host) RemoveAccount(ctx context.Context, name string) (note string, err error) {
	commands, err := h.declared(name)
	if err != nil || len(commands) == 0 {
		return "", err
	}
	was, _, hadGroup, err := h.FindAccount(name)
	if err != nil {
		return "", err
	}
	run := func(command string, args ...string) (code int, printed string, err error) {
		if h.Root != "/" {
			args = append([]string{"--prefix", string(h.Root)}, args...)
		}
		var out []byte
		err = h.Change("/etc/passwd", func() (err error) {
			out, err = childprocess.Command(ctx, command, args...).CombinedOutput()
			return err
		})
		if exit, ok := errors.AsType[*exec.ExitError](err); ok {
			return exit.ExitCode(), string(bytes.TrimSpace(out)), nil
		}
		return 0, "", err
	}
	for _, command := range commands {
		code, text, err := run(command, name)
		switch {
		case errors.Is(err, exec.ErrNotFound):
			return "the user " + name + ": this host has no " + command, nil
		case err != nil:
			return "", fmt.Errorf("removing the user %s: %w", name, err)
		case code == accountInUse && command == "groupdel":
			return "the group " + name + ": another user has it", nil
		case code != 0 && code != missingAccount:
			return "", fmt.Errorf("removing the user %s: %s: exit code %d: %s", name, command, code, text)
		}
	}
	if !hadGroup || slices.Contains(commands, "groupdel") {
		return "", nil
	}
	// With USERGROUPS_ENAB in login.defs, userdel removes the group, too.
	if _, _, group, err := h.FindAccount(name); err != nil || group {
		return "", err
	}
	if code, text, err := run("groupadd", "--gid", strconv.Itoa(was.GID), name); err != nil || code != 0 {
		return "", fmt.Errorf("creating the group %s again: groupadd --gid %d %s: exit code %d: %s%v", name, was.GID, name, code, text, err)
	}
	return "", nil
}

// GiveData makes an account the owner of a directory that it alone can enter, and of everything below one name in it. It follows no
// link. Reset gives a directory that existed before to its previous owner.
func (h *Host) GiveData(dir, name string, a Account) error {
	if _, err := h.Place(dir); err != nil {
		return fmt.Errorf("changing the owner of %s: %w", dir, err)
	}
	root, err := os.OpenRoot(h.Path(dir))
	if err != nil {
		return fmt.Errorf("changing the owner of %s: %w", dir, err)
	}
	defer root.Close()
	top, err := root.Open(".")
	if err != nil {
		return err
	}
	defer top.Close()
	info, err := top.Stat()
	if err != nil {
		return err
	}
	if e, ok := h.Records().Find(ledger.Contents, dir); ok && e.Owner == nil {
		was := OwnerOf(info)
		e.Owner = &ledger.Owner{UID: was.UID, GID: was.GID}
		if err := h.Records().Record(e); err != nil {
			return err
		}
	}
	give := func(path string, d fs.DirEntry, err error) error {
		if err == nil {
			var info fs.FileInfo
			if info, err = d.Info(); err == nil && OwnerOf(info) != a {
				err = root.Lchown(path, a.UID, a.GID)
			}
		}
		if errors.Is(err, fs.ErrNotExist) { // there is no data yet, or its user has removed a file
			return nil
		}
		return err
	}
	err = h.Change(dir, func() error {
		if err := fs.WalkDir(root.FS(), name, give); err != nil {
			return err
		}
		if OwnerOf(info) != a {
			if err := top.Chown(a.UID, a.GID); err != nil {
				return err
			}
		}
		return top.Chmod(0o700)
	})
	if err != nil {
		return fmt.Errorf("changing the owner of %s: %w", dir, err)
	}
	return nil
}

// OwnerOf returns the owner of a file.
func OwnerOf(info fs.FileInfo) (a Account) {
	if st, ok := info.Sys().(*syscall.Stat_t); ok {
		a = Account{int(st.Uid), int(st.Gid)}
	}
	return a
}
