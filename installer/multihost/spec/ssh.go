package spec

import (
	"cmp"
	"fmt"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

const (
	defaultUser = "root"
	defaultPort = 22
)

// ssh returns how a host is reached: its own values, or its group's, or the values for all hosts.
func (r *reader) ssh(at string, in *host, g *group, doc *document) SSH {
	if in.Address != "" && r.Lines[at+".ssh.address"] != 0 {
		r.Add(r.Lines[at+".address"], "remove one of them", "%s has both address and ssh.address", at)
	}
	own := in.SSH.sharedSSH
	for _, shared := range []sharedSSH{g.SSH, doc.SSH, {login: login{User: defaultUser, Port: defaultPort}, OpenSSH: new(bool)}} {
		inherit(&own, shared)
	}
	s := SSH{HostKey: in.SSH.HostKey, User: own.User, Port: own.Port, KeyFile: own.KeyPath, OpenSSH: *own.OpenSSH, Options: own.Options}
	if r.Lines[at+".address"]+r.Lines[at+".ssh.address"] == 0 {
		s.Address = in.Name // a name that DNS knows
	} else {
		s.Address = cmp.Or(in.Address, in.SSH.Address)
	}
	for _, j := range own.Jump {
		s.Jump = append(s.Jump, SSH{Address: j.Address, HostKey: j.HostKey, User: cmp.Or(j.User, defaultUser), Port: cmp.Or(j.Port, defaultPort), KeyFile: j.KeyPath})
	}
	written := func(field string) string {
		for _, path := range []string{at + ".ssh." + field, g.at + ".ssh." + field} {
			if r.Lines[path] != 0 {
				return path
			}
		}
		return "ssh." + field
	}
	if len(s.Options) > 0 && !s.OpenSSH {
		r.Add(r.Lines[written("options")], "write openSSH: true, or remove the options", "%s needs openSSH", written("options"))
	}
	r.checkOptions(written("options"), s.Options)
	if slices.ContainsFunc(s.Jump, func(j SSH) bool { return j.Address != "" && target(j) == target(s) }) {
		r.Add(r.Lines.Nearest("%s.ssh.jump", at), "write ssh: {jump: []} at this host, which is reached directly", "host %q is its own jump host", in.Name)
	}
	return s
}

// withValue matches the options of the command ssh whose value may be the next word, as its synopsis has them.
var withValue = regexp.MustCompile(`^-[BbcDEeFIiJLlmOoPpQRSWw]$`)

// checkOptions refuses words that are neither options nor follow one.
func (r *reader) checkOptions(at string, options []string) {
	for i, o := range options {
		if after := i > 0 && withValue.MatchString(options[i-1]); o != "" && o[0] != '-' && !after {
			r.Add(r.Lines.Nearest("%s[%d]", at, i), "write options such as -o, ForwardAgent=no, each word as an item", "%s has %q, which ssh would read as the host", at, o)
		}
	}
}

// checkJumps checks jump hosts where they are written.
func (r *reader) checkJumps(at string, jumps []jump) {
	seen := map[string]bool{}
	for i, j := range jumps {
		path := fmt.Sprintf("%s.jump[%d]", at, i)
		if r.Lines[path+".address"] == 0 && r.Lines[path] != 0 {
			r.Add(r.Lines[path], "write address: with the address of the jump host", "%s has no address", path)
		}
		to := target(SSH{Address: j.Address, Port: cmp.Or(j.Port, defaultPort)})
		if seen[to] && j.Address != "" {
			r.Add(r.Lines.Nearest("%s.address", path), "remove one of them", "%s.jump goes through %s twice", at, to)
		}
		seen[to] = true
	}
}

// target is an address and a port, which are the same for the same server.
func target(s SSH) string { return net.JoinHostPort(strings.ToLower(s.Address), strconv.Itoa(s.Port)) }

// route is the target with the jump hosts: behind another one, the same private address is another host.
func route(s SSH) string {
	text := target(s)
	for _, j := range slices.Backward(s.Jump) {
		text += " through " + target(j)
	}
	return text
}

// whereAddress is the field of a host with its address.
func (r *reader) whereAddress(at string) string {
	if r.Lines[at+".address"] != 0 {
		return "address"
	}
	return "ssh.address"
}
