package spec

import (
	"fmt"
	"maps"
	"regexp"
	"strconv"
	"strings"

	"airlift/internal/documents/strict"
)

// span is a range of numbers in a text, both ends included.
var span = regexp.MustCompile(`\[([0-9]{1,9})[-:]([0-9]{1,9})\]`)

// maxSpan is the largest number of hosts of one range: Kubernetes has no cluster with more nodes.
const maxSpan = 5000

const hintRange = "write a range of numbers, such as [01:20]"

// ranges is the rule of a text that may have a range. It returns the texts that it expands to, with blanks between them, each by the rule
// of a single text.
func ranges(one rule) rule {
	return func(r *reader, text string, at strict.Place) (set, why, hint string) {
		list, why, hint := expand(text)
		if why != "" {
			return "", why, hint
		}
		for i, item := range list {
			if list[i], why, hint = one(r, item, at); why == "" {
				continue
			}
			if len(list) > 1 {
				why = fmt.Sprintf("has %q, which %s", item, why)
			} else if strings.HasSuffix(text, "]") && !strings.HasPrefix(text, "[") {
				hint = hintRange
			}
			return "", why, hint
		}
		return strings.Join(list, " "), "", ""
	}
}

// expand returns the texts that a text with a range expands to. A zero in front keeps the number of digits.
func expand(text string) (list []string, why, hint string) {
	found := span.FindAllStringSubmatchIndex(text, 2)
	if len(found) == 0 {
		return []string{text}, "", ""
	}
	if len(found) > 1 {
		return nil, "has two ranges", "write a host for each value of one of them"
	}
	m := found[0]
	first, last := text[m[2]:m[3]], text[m[4]:m[5]]
	from, errFrom := strconv.Atoi(first)
	to, errTo := strconv.Atoi(last)
	switch {
	case errFrom != nil || errTo != nil || to < from:
		return nil, "has a range that ends before it begins", "write the smaller number first"
	case to-from >= maxSpan:
		return nil, fmt.Sprintf("has a range of more than %d hosts", maxSpan), "write a shorter range"
	}
	digits := 0
	if first[0] == '0' {
		digits = len(first)
	}
	for n := from; n <= to; n++ {
		list = append(list, fmt.Sprintf("%s%0*d%s", text[:m[0]], digits, n, text[m[1]:]))
	}
	return list, "", ""
}

// expandHosts replaces each host with a range by the hosts that it expands to. at is where each is written.
func (r *reader) expandHosts(written []host) (hosts []host) {
	for i, h := range written {
		h.at = fmt.Sprintf("hosts[%d]", i)
		names := strings.Fields(h.Name)
		if len(names) == 0 {
			names = []string{h.Name} // an error has its line
		}
		step := func(field, text string, k int) string {
			list := strings.Fields(text)
			switch {
			case text == "":
				return ""
			case len(list) == len(names):
				return list[k]
			case h.Name != "":
				r.Add(r.Lines.Nearest("%s.%s", h.at, field), "write a range of as many numbers as in name, such as 10.0.0.[11-30]",
					"%s.%s has %d, and %s.name has %d", h.at, field, len(list), h.at, len(names))
			}
			return ""
		}
		if len(names) > 1 && h.SSH.HostKey != "" {
			r.Add(r.Lines[h.at+".ssh.hostKey"], "remove the line: known_hosts has the keys; or write each host by itself", "%s.ssh.hostKey is one key for %d hosts", h.at, len(names))
		}
		if len(names) > 1 && h.Match != nil {
			r.Add(r.Lines[h.at+".match"], "write each host by itself", "%s.match is one machine for %d hosts", h.at, len(names))
		}
		for k, name := range names {
			one := h
			one.Name, one.Address, one.SSH.Address = name, step("address", h.Address, k), step("ssh.address", h.SSH.Address, k)
			one.NodeIP = nil
			for n, ip := range h.NodeIP {
				one.NodeIP = append(one.NodeIP, step(fmt.Sprintf("nodeIP[%d]", n), ip, k))
			}
			one.Labels = maps.Clone(h.Labels) // a host adds the labels of its group
			hosts = append(hosts, one)
		}
	}
	return hosts
}
