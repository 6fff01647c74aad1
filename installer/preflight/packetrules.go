package preflight

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"airlift/internal/childprocess"
)

// errNoCommand is the error for a command that the host does not have.
var errNoCommand = errors.New("this host has no such command")

// commandTimeout limits the time of one command of a firewall.
const commandTimeout = 10 * time.Second

// output runs a command of the host and returns what it prints.
func (s *subject) output(ctx context.Context, name string, args ...string) ([]byte, error) {
	path := s.commandPath(name)
	if path == "" {
		return nil, errNoCommand
	}
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := childprocess.Command(ctx, path, args...)
	cmd.Env = append(cmd.Env, "LC_ALL=C")
	return cmd.Output()
}

// A packetRule is a rule that accepts packets or passes them to another chain. A nil list
// is no restriction. Everything else that a rule may compare, such as addresses, is left
// out, so the rule may apply to fewer packets.
type packetRule struct {
	in, out   []string // interfaces; + or * at the end is any text
	protocols []string
	ports     [][2]int // of the destination
	replies   bool     // only for connections that already exist
	next      string   // the chain to continue with; "" accepts
}

// appliesTo reports whether the rule may apply to the traffic.
func (r packetRule) appliesTo(n need) bool {
	return !r.replies && matchesName(r.in, n.in) && matchesName(r.out, n.out) &&
		(r.protocols == nil || slices.Contains(r.protocols, n.protocol)) &&
		(r.ports == nil || slices.ContainsFunc(r.ports, func(p [2]int) bool { return p[0] <= n.port && n.port <= p[1] }))
}

func matchesName(patterns []string, name string) bool {
	return patterns == nil || name == "" || slices.ContainsFunc(patterns, func(p string) bool {
		begin := strings.TrimRight(p, "+*")
		return p == name || begin != p && strings.HasPrefix(name, begin)
	})
}

// A chainName identifies a chain.
type chainName struct{ family, table, chain string }

func (c chainName) String() string { return c.family + " " + c.table + " " + c.chain }

// isIptables reports whether iptables created the chain.
func (c chainName) isIptables() bool {
	return c.family != "inet" && c.table == "filter" && (c.chain == "INPUT" || c.chain == "FORWARD")
}

// A packetChain has the rules of a chain that accept packets or continue in another chain.
type packetChain struct {
	hook  string // input or forward, if the kernel begins here and drops what no rule accepts
	base  string // the same, also if the policy accepts
	last  bool   // a rule without a condition drops: what is appended is not reached
	rules []packetRule
}

// add adds a rule. The last one of a chain often drops, as the policy would: iptables-services of RHEL.
func (c packetChains) add(name chainName, drops bool, words []string) {
	chain := c[name]
	if drops && chain.base != "" {
		chain.hook, chain.last = chain.base, true
	}
	if r, ok := readRule(words); ok && !chain.last {
		chain.rules = append(chain.rules, r)
	}
	c[name] = chain
}

// isFirewallds reports whether firewalld made a chain. It is asked by its command.
func (c packetChains) isFirewallds(name chainName) bool {
	_, zones := c[chainName{name.family, name.table, name.chain + "_ZONES"}]
	return name.table == "firewalld" || zones
}

type packetChains map[chainName]packetChain

// mayAccept reports whether a rule of a chain, or of a chain that its rules continue with, may accept the traffic.
func (c packetChains) mayAccept(name chainName, n need) bool {
	return slices.ContainsFunc(c[name].rules, func(r packetRule) bool {
		return r.appliesTo(n) && (r.next == "" || c.mayAccept(chainName{name.family, name.table, r.next}, n))
	})
}

// readChains reads the chains of nftables and of iptables. The kernel may show rules of iptables
// to nft, but not with all details: of a chain that both commands print, iptables-save is used.
func (s *subject) readChains(ctx context.Context) (packetChains, error) {
	chains := packetChains{}
	ruleset, err := s.run(ctx, "nft", "-j", "list", "ruleset")
	if err == nil {
		err = chains.addNftables(ruleset)
	}
	failed := []error{err}
	for _, of := range [][2]string{{"ip", "iptables-save"}, {"ip6", "ip6tables-save"}} {
		saved, err := s.run(ctx, of[1]) // with a table's name it might load a kernel module
		chains.addIptables(of[0], string(saved))
		failed = append(failed, err)
	}
	return chains, errors.Join(slices.DeleteFunc(failed, func(err error) bool { return errors.Is(err, errNoCommand) })...)
}

var quoted = regexp.MustCompile(`"(?:[^"\\]|\\.)*"`)

// addIptables adds the chains of the table filter, as iptables-save prints them.
func (c packetChains) addIptables(family, saved string) {
	table := ""
	for line := range strings.Lines(saved) {
		words := strings.Fields(quoted.ReplaceAllString(line, "TEXT"))
		switch {
		case strings.HasPrefix(line, "*"):
			table = words[0]
		case table != "*filter":
		case len(words) > 1 && strings.HasPrefix(words[0], ":"):
			name := words[0][1:]
			chain := packetChain{}
			if name == "INPUT" || name == "FORWARD" {
				chain.base = strings.ToLower(name)
			}
			if words[1] == "DROP" {
				chain.hook = chain.base
			}
			c[chainName{family, "filter", name}] = chain
		case len(words) > 3 && words[0] == "-A":
			drops := words[2] == "-j" && (words[3] == "DROP" || words[3] == "REJECT")
			c.add(chainName{family, "filter", words[1]}, drops, words[2:])
		}
	}
}

// readRule reads a rule in the words of iptables-save. ok is false for a rule that neither accepts nor continues.
func readRule(words []string) (r packetRule, ok bool) {
	for i := 0; i+1 < len(words); i++ {
		list := strings.Split(words[i+1], ",")
		if i > 0 && words[i-1] == "!" {
			continue
		}
		switch words[i] {
		case "-i":
			r.in = list
		case "-o":
			r.out = list
		case "-p":
			r.protocols = list
		case "--dport", "--dports", "--ports":
			for _, p := range list {
				r.ports = append(r.ports, portRange(p, ":"))
			}
		case "--ctstate", "--state":
			r.replies = !slices.Contains(list, "NEW")
		case "-j", "-g":
			ok = true
			if r.next = words[i+1]; slices.Contains([]string{"ACCEPT", "QUEUE", "NFQUEUE"}, r.next) {
				r.next = ""
			}
		}
	}
	return r, ok
}

// portRange reads a number, or two with a separator.
func portRange(text, separator string) [2]int {
	first, last, isRange := strings.Cut(text, separator)
	if !isRange {
		last = first
	}
	from, _ := strconv.Atoi(first) // the commands print numbers
	to, _ := strconv.Atoi(last)
	return [2]int{from, to}
}

// addNftables adds the chains that nft prints as JSON (libnftables-json(5)).
func (c packetChains) addNftables(ruleset []byte) error {
	var list struct {
		Nftables []struct {
			Chain *struct{ Family, Table, Name, Hook, Policy string }
			Rule  *struct {
				Family, Table, Chain string
				Expr                 []map[string]any
			}
		}
	}
	if err := json.Unmarshal(ruleset, &list); err != nil {
		return fmt.Errorf("decoding the output of nft: %w", err)
	}
	for _, item := range list.Nftables {
		if chain := item.Chain; chain != nil {
			read := packetChain{base: chain.Hook}
			if chain.Policy == "drop" {
				read.hook = chain.Hook
			}
			c[chainName{chain.Family, chain.Table, chain.Name}] = read
		}
		if rule := item.Rule; rule != nil {
			c.add(chainName{rule.Family, rule.Table, rule.Chain}, alwaysDrops(rule.Expr), nftablesWords(rule.Expr))
		}
	}
	return nil
}

// alwaysDrops reports whether a rule has no condition, and drops.
func alwaysDrops(expressions []map[string]any) (drops bool) {
	for _, e := range expressions {
		for statement := range e {
			switch statement {
			case "drop", "reject":
				drops = true
			case "counter", "log":
			default:
				return false
			}
		}
	}
	return drops
}

// nftablesWords writes a rule in the words of iptables, without what readRule does not read. A verdict map accepts all values
// that it does not drop.
func nftablesWords(expressions []map[string]any) (words []string) {
	for _, e := range expressions {
		for statement, of := range e {
			fields, _ := of.(map[string]any)
			switch statement {
			case "accept", "queue":
				words = append(words, "-j", "ACCEPT")
			case "jump", "goto":
				words = append(words, "-j", fmt.Sprint(fields["target"]))
			case "match":
				if fields["op"] != "==" && fields["op"] != "in" {
					fields["right"] = nil // of a comparison, only the protocol
				}
				words = append(words, nftablesOption(fields["left"], fields["right"])...)
			case "vmap":
				data, _ := fields["data"].(map[string]any)
				pairs, _ := data["set"].([]any) // none of a map with a name
				var accepted []any
				for _, p := range pairs {
					if pair, _ := p.([]any); len(pair) == 2 {
						verdict, _ := pair[1].(map[string]any)
						if _, drops := verdict["drop"]; !drops {
							accepted = append(accepted, pair[0])
						}
					}
				}
				if pairs == nil || accepted != nil {
					words = append(append(words, nftablesOption(fields["key"], accepted)...), "-j", "ACCEPT")
				}
			}
		}
	}
	return words
}

// nftablesOption writes what a rule compares as an option of iptables.
func nftablesOption(left, right any) []string {
	of, _ := left.(map[string]any)
	property := func(kind, field string) string {
		fields, _ := of[kind].(map[string]any)
		text, _ := fields[field].(string)
		return text
	}
	value := nftablesValue(right)
	key, protocol, field := property("meta", "key"), property("payload", "protocol"), property("payload", "field")
	switch {
	case field == "dport" && protocol == "th" && value != "":
		return []string{"--dports", value}
	case field == "dport" && value != "":
		return []string{"-p", protocol, "--dports", value}
	case slices.Contains([]string{"tcp", "udp", "icmp", "icmpv6"}, protocol):
		return []string{"-p", protocol}
	case value == "":
		return nil
	case key == "iifname" || key == "iif":
		return []string{"-i", value}
	case key == "oifname" || key == "oif":
		return []string{"-o", value}
	case key == "l4proto" || field == "protocol" || field == "nexthdr":
		return []string{"-p", value}
	case property("ct", "key") == "state":
		return []string{"--ctstate", strings.ToUpper(value)}
	}
	return nil
}

// nftablesValue writes a value as iptables would: words with commas, ranges with colons; "" if it is not known, as of a set with a name.
func nftablesValue(v any) string {
	switch v := v.(type) {
	case string:
		if !strings.HasPrefix(v, "@") {
			return v
		}
	case float64:
		return strconv.Itoa(int(v))
	case []any:
		var words []string
		for _, item := range v {
			words = append(words, nftablesValue(item))
		}
		if !slices.Contains(words, "") {
			return strings.Join(words, ",")
		}
	case map[string]any:
		if bounds, ok := v["range"].([]any); ok {
			return strings.ReplaceAll(nftablesValue(bounds), ",", ":")
		}
		return nftablesValue(v["set"])
	}
	return ""
}
