package firewall

import (
	"bytes"
	"encoding/binary"
	"net"
	"net/netip"
	"slices"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/xt"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// A Packet is the first packet of a connection, as the rules see it.
type Packet struct {
	In, Out string // interfaces; Out is empty for a packet to this host
	// From and To are the ranges of the packet's addresses. 0.0.0.0/0 is any address.
	From, To netip.Prefix
	Protocol string // tcp or udp
	Port     uint16 // 0 for any
}

// match is the result of comparing a rule with a packet.
type match int

const (
	no match = iota
	yes
	maybe // it depends on unknown facts
)

func when(b bool) match {
	if b {
		return yes
	}
	return no
}

func (m match) not() match {
	switch m {
	case no:
		return yes
	case yes:
		return no
	}
	return maybe
}

// ephemeralPort is the source port of a packet.
const ephemeralPort = 40000

func (p Packet) protocol() byte {
	if p.Protocol == "udp" {
		return unix.IPPROTO_UDP
	}
	return unix.IPPROTO_TCP
}

// A value has bits. Some of them may be unknown.
type value struct{ bits, known []byte }

func known(bits ...byte) value { return value{bits, bytes.Repeat([]byte{0xff}, len(bits))} }

func unknown(n int) value { return value{make([]byte, n), make([]byte, n)} }

func join(parts ...value) (v value) {
	for _, p := range parts {
		v.bits, v.known = append(v.bits, p.bits...), append(v.known, p.known...)
	}
	return v
}

// low and high are the smallest and the largest possible value.
func (v value) low() []byte {
	low := slices.Clone(v.bits)
	for i := range low {
		low[i] &= v.known[i]
	}
	return low
}

func (v value) high() []byte {
	high := v.low()
	for i := range high {
		high[i] |= ^v.known[i]
	}
	return high
}

// equals compares the value with data of its length.
func (v value) equals(data []byte) match {
	m := yes
	for i := range data {
		if (v.bits[i]^data[i])&v.known[i] != 0 {
			return no
		}
		if v.known[i] != 0xff {
			m = maybe
		}
	}
	return m
}

// within reports whether the value is in a range.
func (v value) within(from, to []byte) match {
	low, high := v.low(), v.high()
	switch {
	case bytes.Compare(high, from) < 0 || bytes.Compare(low, to) > 0:
		return no
	case bytes.Compare(low, from) >= 0 && bytes.Compare(high, to) <= 0:
		return yes
	}
	return maybe
}

func address(p netip.Prefix) value {
	v := known(p.Addr().AsSlice()...)
	for i := range v.known {
		rest := min(max(p.Bits()-8*i, 0), 8)
		v.known[i] = ^byte(0xff >> rest)
	}
	return v
}

func (p Packet) networkHeader() value {
	const dontFragment, ttl = 0x40, 64
	if p.To.Addr().Is6() {
		return join(known(0x60, 0, 0, 0, 0, 40, p.protocol(), ttl), address(p.From), address(p.To))
	}
	return join(known(0x45, 0, 0, 60, 0, 0, dontFragment, 0, ttl, p.protocol(), 0, 0), address(p.From), address(p.To))
}

func (p Packet) transportHeader() value {
	port := unknown(2)
	if p.Port != 0 {
		port = known(binary.BigEndian.AppendUint16(nil, p.Port)...)
	}
	ports := join(known(binary.BigEndian.AppendUint16(nil, ephemeralPort)...), port)
	if p.Protocol == "udp" {
		return join(ports, unknown(4))
	}
	const dataOffset, syn = 0x50, 0x02
	return join(ports, unknown(8), known(dataOffset, syn), unknown(6))
}

// registers are the registers of nftables.
type registers struct{ bits, known [64]byte }

// at is the offset of a register: there are 4 of 16 bytes and, at the same place,
// 16 of 4 bytes.
func at(register uint32) int {
	if register >= unix.NFT_REG32_00 {
		return int(register-unix.NFT_REG32_00) * 4 % 64
	}
	return int(max(register, 1)-1) * 16 % 64
}

// set stores a value, which fills whole words.
func (r *registers) set(register uint32, v value) {
	for i := range (len(v.bits) + 3) / 4 * 4 {
		if o := at(register) + i; o >= len(r.bits) {
			return
		} else if i < len(v.bits) {
			r.bits[o], r.known[o] = v.bits[i], v.known[i]
		} else {
			r.bits[o], r.known[o] = 0, 0xff
		}
	}
}

func (r *registers) get(register uint32, n int) value {
	from := at(register)
	if from+n > len(r.bits) {
		return unknown(n)
	}
	return value{r.bits[from : from+n], r.known[from : from+n]}
}

// registerSize is the size in bytes of the largest register.
const registerSize = 16

// judge applies a rule to a packet. The verdict is nil if the rule has none.
func (f *Rules) judge(table *nftables.Table, rule *nftables.Rule, p Packet) (verdict *expr.Verdict, matches match, err error) {
	var r registers
	matches = yes
	for _, e := range rule.Exprs {
		m := yes
		switch e := e.(type) {
		case *expr.Verdict:
			return e, matches, nil
		case *expr.Reject:
			return &expr.Verdict{Kind: expr.VerdictDrop}, matches, nil
		case *expr.Queue:
			return &expr.Verdict{Kind: expr.VerdictQueue}, matches, nil
		case *expr.Target:
			if v := targetVerdict(e.Name); v != nil {
				return v, matches, nil
			}
		case *expr.Lookup:
			m, verdict, err = f.lookup(table, e, &r)
			if err != nil {
				return nil, no, err
			}
			if m != no && verdict != nil {
				return verdict, max(m, matches), nil
			}
		default:
			m = p.apply(e, &r)
		}
		if m == no {
			return nil, no, nil
		}
		matches = max(matches, m)
	}
	return nil, matches, nil
}

// targetVerdict is the verdict of an iptables target; nil if the packet continues with the next
// rule.
func targetVerdict(name string) *expr.Verdict {
	switch name {
	case "REJECT", "TARPIT", "DELUDE":
		return &expr.Verdict{Kind: expr.VerdictDrop}
	case "NFQUEUE":
		return &expr.Verdict{Kind: expr.VerdictQueue}
	}
	return nil
}

// apply applies an expression that has no verdict.
func (p Packet) apply(e expr.Any, r *registers) match {
	switch e := e.(type) {
	case *expr.Meta:
		if !e.SourceRegister {
			r.set(e.Register, p.meta(e.Key))
		}
	case *expr.Payload:
		if e.OperationType == expr.PayloadLoad {
			r.set(e.DestRegister, p.payload(e))
		}
	case *expr.Ct:
		if !e.SourceRegister {
			r.set(e.Register, conntrack(e.Key))
		}
	case *expr.Bitwise:
		v := r.get(e.SourceRegister, int(e.Len))
		if len(e.Mask) != len(v.bits) || len(e.Xor) != len(v.bits) { // a shift
			r.set(e.DestRegister, unknown(int(e.Len)))
			break
		}
		v = value{slices.Clone(v.bits), slices.Clone(v.known)}
		for i := range v.bits {
			v.bits[i] = v.bits[i]&e.Mask[i] ^ e.Xor[i]
			v.known[i] |= ^e.Mask[i]
		}
		r.set(e.DestRegister, v)
	case *expr.Immediate:
		r.set(e.Register, known(e.Data...))
	case *expr.Cmp:
		return compare(r.get(e.Register, len(e.Data)), e.Op, e.Data)
	case *expr.Range:
		m := r.get(e.Register, len(e.FromData)).within(e.FromData, e.ToData)
		if e.Op == expr.CmpOpNeq {
			return m.not()
		}
		return m
	case *expr.Match:
		return p.xtables(e)
	case *expr.Fib:
		r.set(e.Register, unknown(registerSize))
	case *expr.Hash:
		r.set(e.DestRegister, unknown(registerSize))
	case *expr.Numgen:
		r.set(e.Register, unknown(registerSize))
	case *expr.Socket:
		r.set(e.Register, unknown(registerSize))
	case *expr.Exthdr:
		r.set(e.DestRegister, unknown(registerSize))
	case *expr.Counter, *expr.Log, *expr.Notrack, *expr.Objref:
	default: // limits, quotas, sets that grow
		return maybe
	}
	return yes
}

// compare compares a value with data. Numbers are compared as the kernel does, byte by byte.
func compare(v value, op expr.CmpOp, data []byte) match {
	least, most := make([]byte, len(data)), bytes.Repeat([]byte{0xff}, len(data))
	switch op {
	case expr.CmpOpEq:
		return v.equals(data)
	case expr.CmpOpNeq:
		return v.equals(data).not()
	case expr.CmpOpLt:
		return v.within(data, most).not()
	case expr.CmpOpLte:
		return v.within(least, data)
	case expr.CmpOpGt:
		return v.within(least, data).not()
	}
	return v.within(data, most)
}

// meta is a property of the packet.
func (p Packet) meta(key expr.MetaKey) value {
	family, protocol := byte(unix.NFPROTO_IPV4), uint16(unix.ETH_P_IP)
	if p.To.Addr().Is6() {
		family, protocol = unix.NFPROTO_IPV6, unix.ETH_P_IPV6
	}
	name := func(s string) value { return known(append([]byte(s), make([]byte, unix.IFNAMSIZ-len(s))...)...) }
	switch key {
	case expr.MetaKeyIIFNAME:
		return name(p.In)
	case expr.MetaKeyOIFNAME:
		return name(p.Out)
	case expr.MetaKeyIIF:
		return index(p.In)
	case expr.MetaKeyOIF:
		return index(p.Out)
	case expr.MetaKeyL4PROTO:
		return known(p.protocol())
	case expr.MetaKeyNFPROTO:
		return known(family)
	case expr.MetaKeyPROTOCOL:
		return known(binary.BigEndian.AppendUint16(nil, protocol)...)
	case expr.MetaKeyMARK:
		return known(0, 0, 0, 0)
	case expr.MetaKeyPKTTYPE:
		return known(unix.PACKET_HOST)
	}
	return unknown(registerSize)
}

// index is the number of an interface. One that does not exist yet has none that a rule could
// have.
func index(name string) value {
	link, err := net.InterfaceByName(name)
	if err != nil {
		return known(0xff, 0xff, 0xff, 0xff)
	}
	return known(binary.NativeEndian.AppendUint32(nil, uint32(link.Index))...)
}

func (p Packet) payload(e *expr.Payload) value {
	var header value
	switch e.Base {
	case expr.PayloadBaseNetworkHeader:
		header = p.networkHeader()
	case expr.PayloadBaseTransportHeader:
		header = p.transportHeader()
	}
	if int(e.Offset+e.Len) > len(header.bits) {
		return unknown(int(e.Len))
	}
	return value{header.bits[e.Offset : e.Offset+e.Len], header.known[e.Offset : e.Offset+e.Len]}
}

// conntrack is a property of the connection: it is new.
func conntrack(key expr.CtKey) value {
	switch key {
	case expr.CtKeySTATE:
		return known(binary.NativeEndian.AppendUint32(nil, expr.CtStateBitNEW)...)
	case expr.CtKeySTATUS:
		return known(0, 0, 0, 0)
	case expr.CtKeyDIRECTION:
		return known(0)
	}
	return unknown(registerSize)
}

// lookup looks for a register's value in a set or map. For a map it returns the
// verdict, if it has one.
func (f *Rules) lookup(table *nftables.Table, e *expr.Lookup, r *registers) (match, *expr.Verdict, error) {
	elements, err := f.elements(table, e.SetName)
	if err != nil {
		return no, nil, err
	}
	if len(elements) == 0 {
		return when(e.Invert), nil, nil
	}
	longest := slices.MaxFunc(elements, func(a, b nftables.SetElement) int { return len(a.Key) - len(b.Key) })
	m, found := find(elements, r.get(e.SourceRegister, len(longest.Key)))
	switch {
	case !e.IsDestRegSet && e.Invert:
		return m.not(), nil, nil
	case !e.IsDestRegSet || m == no:
		return m, nil, nil
	case e.DestRegister != unix.NFT_REG_VERDICT:
		r.set(e.DestRegister, unknown(registerSize))
		return m, nil, nil
	case m == maybe:
		return maybe, &expr.Verdict{Kind: expr.VerdictQueue}, nil // any verdict of the map
	}
	verdict, err := verdictOf(found.Val)
	return yes, verdict, err
}

// verdictOf decodes the verdict of a map's element, which the nftables package
// leaves as it came.
func verdictOf(data []byte) (*expr.Verdict, error) {
	attrs, err := nl.ParseRouteAttr(data)
	if err != nil {
		return nil, err
	}
	var v expr.Verdict
	for _, a := range attrs {
		switch a.Attr.Type {
		case unix.NFTA_VERDICT_CODE:
			if len(a.Value) >= 4 {
				v.Kind = expr.VerdictKind(int32(binary.BigEndian.Uint32(a.Value)))
			}
		case unix.NFTA_VERDICT_CHAIN:
			v.Chain = string(bytes.TrimRight(a.Value, "\x00"))
		}
	}
	return &v, nil
}

// find returns the element for a value. In a set of intervals, an element is the
// start of an interval, or the first value after one.
func find(elements []nftables.SetElement, v value) (match, *nftables.SetElement) {
	if slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return len(e.KeyEnd) > 0 }) {
		return maybe, nil // ranges of several fields
	}
	elements = slices.Clone(elements)
	slices.SortFunc(elements, func(a, b nftables.SetElement) int {
		if c := bytes.Compare(a.Key, b.Key); c != 0 || a.IntervalEnd == b.IntervalEnd {
			return c
		} else if a.IntervalEnd {
			return -1
		}
		return 1
	})
	intervals := slices.ContainsFunc(elements, func(e nftables.SetElement) bool { return e.IntervalEnd })
	best, others := no, (*nftables.SetElement)(nil)
	for i := range elements {
		e := &elements[i]
		m := no
		switch {
		case len(e.Key) == 0: // for all other values
			others = e
		case !intervals:
			m = v.equals(e.Key)
		case !e.IntervalEnd:
			to := bytes.Repeat([]byte{0xff}, len(e.Key))
			if i+1 < len(elements) {
				to = before(elements[i+1].Key)
			}
			m = v.within(e.Key, to)
		}
		if m == yes {
			return yes, e
		}
		best = max(best, m)
	}
	if others == nil {
		return best, nil
	}
	if best == no {
		return yes, others
	}
	return maybe, nil
}

// before returns number-1. number must not be 0.
func before(number []byte) []byte {
	b := slices.Clone(number)
	for i := len(b) - 1; i >= 0; i-- {
		b[i]--
		if b[i] != 0xff {
			break
		}
	}
	return b
}

// xtables applies a match of iptables.
func (p Packet) xtables(e *expr.Match) match {
	switch info := e.Info.(type) {
	case *xt.Comment:
		return yes
	case *xt.ConntrackMtinfo1:
		return stateMatches(info.ConntrackMtinfoBase, uint16(info.StateMask))
	case *xt.ConntrackMtinfo2:
		return stateMatches(info.ConntrackMtinfoBase, info.StateMask)
	case *xt.ConntrackMtinfo3:
		return stateMatches(info.ConntrackMtinfoBase, info.StateMask)
	case *xt.Tcp:
		const syn = 0x02
		flags := when((syn&info.FlagsMask == info.FlagsCmp) != (info.InvFlags&xt.TcpInvFlags != 0))
		if info.Option != 0 && flags == yes {
			flags = maybe
		}
		return all(flags,
			inPorts(info.SrcPorts, ephemeralPort, info.InvFlags&xt.TcpInvSrcPorts != 0),
			inPorts(info.DstPorts, p.Port, info.InvFlags&xt.TcpInvDestPorts != 0))
	case *xt.Udp:
		return all(
			inPorts(info.SrcPorts, ephemeralPort, info.InvFlags&xt.UdpInvSrcPorts != 0),
			inPorts(info.DstPorts, p.Port, info.InvFlags&xt.UdpInvDestPorts != 0))
	case *xt.AddrTypeV1:
		return p.addressTypes(info)
	case *xt.Unknown:
		if e.Name == "multiport" && e.Rev == 1 {
			return p.multiport(*info)
		}
	}
	return maybe
}

// all requires all of the given matches.
func all(matches ...match) match {
	if slices.Contains(matches, no) {
		return no
	}
	return slices.Max(matches)
}

func inPorts(ports [2]uint16, port uint16, inverted bool) match {
	m := when(ports[0] <= port && port <= ports[1])
	if port == 0 && ports != [2]uint16{0, 0xffff} {
		m = maybe
	}
	if inverted {
		return m.not()
	}
	return m
}

// stateMatches: a new connection has the same bit as in nftables.
func stateMatches(info xt.ConntrackMtinfoBase, states uint16) match {
	flags := xt.ConntrackFlags(info.MatchFlags) &^ xt.ConntrackStateAlias
	if flags&xt.ConntrackState != 0 &&
		(uint32(states)&expr.CtStateBitNEW != 0) == (xt.ConntrackFlags(info.InvertFlags)&xt.ConntrackState != 0) {
		return no
	}
	if flags == xt.ConntrackState {
		return yes
	}
	return maybe
}

// addressTypes: a packet that is not forwarded is for a local address.
func (p Packet) addressTypes(info *xt.AddrTypeV1) match {
	const invertSource, invertDest = 1, 2
	source, dest := xt.AddrTypeUnicast, xt.AddrTypeUnicast
	if p.In == "lo" {
		source = xt.AddrTypeLocal
	}
	if p.Out == "" {
		dest = xt.AddrTypeLocal
	}
	return when(
		(info.Source == 0 || (xt.AddrTypeFlags(info.Source)&source != 0) != (info.Flags&invertSource != 0)) &&
			(info.Dest == 0 || (xt.AddrTypeFlags(info.Dest)&dest != 0) != (info.Flags&invertDest != 0)))
}

// multiport is xt_multiport_v1 of the kernel: which ports, how many, the ports,
// whether each begins a range, and whether the match is inverted.
func (p Packet) multiport(info []byte) match {
	const size, source, dest = 48, 0, 1
	if len(info) < size || p.Port == 0 {
		return maybe
	}
	which, count, inverted := info[0], min(int(info[1]), 15), info[47] != 0
	ports, ranges := info[2:32], info[32:47]
	port := func(i int) uint16 { return binary.NativeEndian.Uint16(ports[2*i:]) }
	in := func(x uint16) bool {
		for i := 0; i < count; i++ {
			first := port(i)
			last := first
			if ranges[i] != 0 && i+1 < count {
				i++
				last = port(i)
			}
			if first <= x && x <= last {
				return true
			}
		}
		return false
	}
	found := which != source && in(p.Port) || which != dest && in(ephemeralPort)
	return when(found != inverted)
}
