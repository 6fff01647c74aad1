package probe

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// maxBulk is how many bytes a server sends to one client at most.
const maxBulk = 8 << 20

// clientTime limits a connection: who connects and sends nothing gets no memory for long.
const clientTime = 20 * time.Second

// maxClients limits the connections at a time. A test with sixty nodes opens about two hundred.
const maxClients = 1000

// Serve answers until ctx ends or the time of the server is over. It prints the nodes that it hears to out.
func (s Server) Serve(ctx context.Context, out io.Writer) error {
	ctx, cancel := context.WithTimeout(ctx, time.Duration(s.Seconds)*time.Second)
	defer cancel()
	address := net.JoinHostPort("", strconv.Itoa(OpenPort))
	packets, err := (&net.ListenConfig{}).ListenPacket(ctx, "udp", address)
	if err != nil {
		return err
	}
	defer packets.Close()
	dontFragment(packets.(*net.UDPConn))
	listeners := []io.Closer{packets}
	for _, port := range []int{OpenPort, ClosedPort} {
		l, err := (&net.ListenConfig{}).Listen(ctx, "tcp", net.JoinHostPort("", strconv.Itoa(port)))
		if err != nil {
			return err
		}
		defer l.Close()
		listeners = append(listeners, l)
	}
	var wg sync.WaitGroup
	wg.Go(func() { s.packets(packets.(*net.UDPConn), out) })
	for _, l := range listeners[1:] {
		wg.Go(func() { s.connections(ctx, l.(net.Listener)) })
	}
	<-ctx.Done()
	for _, l := range listeners {
		_ = l.Close()
	}
	wg.Wait()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil
	}
	return ctx.Err()
}

// packets answers datagrams. A request is "NONCE NODE\n", filled up to any size. The answer has the same size.
func (s Server) packets(conn *net.UDPConn, out io.Writer) {
	heard := map[string]bool{}
	buffer := make([]byte, 1<<16)
	for {
		n, from, err := conn.ReadFromUDP(buffer)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		line, _, _ := strings.Cut(string(buffer[:n]), "\n")
		nonce, node, _ := strings.Cut(line, " ")
		if nonce != s.Nonce || n < len(s.answer()) || !slices.Contains(s.Nodes, node) {
			continue
		}
		if !heard[node] {
			heard[node] = true
			text, _ := json.Marshal(Heard{node}) // of a string
			fmt.Fprintf(out, "%s\n", text)
		}
		copy(buffer[:n], s.answer())
		_, _ = conn.WriteToUDP(buffer[:n], from) // who gets no answer asks again
	}
}

// answer is "NONCE NODE NANOSECONDS\n", with the time of this host.
func (s Server) answer() string {
	return fmt.Sprintf("%s %s %d\n", s.Nonce, s.Node, time.Now().UnixNano())
}

// minPacket is longer than any answer: a nonce has 26 characters, a node's name at most 253.
const minPacket = 320

// connections answers "NONCE BYTES\n" with the answer and this many bytes.
func (s Server) connections(ctx context.Context, l net.Listener) {
	slots := make(chan struct{}, maxClients)
	for {
		conn, err := l.Accept()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil {
			continue
		}
		select {
		case slots <- struct{}{}:
		default:
			_ = conn.Close()
			continue
		}
		go func() {
			defer func() { <-slots }()
			defer conn.Close()
			stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
			defer stop()
			_ = conn.SetDeadline(time.Now().Add(clientTime))
			line, err := bufio.NewReader(io.LimitReader(conn, minPacket)).ReadString('\n')
			nonce, size, _ := strings.Cut(strings.TrimSuffix(line, "\n"), " ")
			bytes, sizeErr := strconv.Atoi(size)
			if err != nil || nonce != s.Nonce || sizeErr != nil || bytes < 0 || bytes > maxBulk {
				return
			}
			if _, err := io.WriteString(conn, s.answer()); err != nil {
				return
			}
			_, _ = io.CopyN(conn, zeros{}, int64(bytes)) // the client reports what is missing
		}()
	}
}

// zeros is an endless reader.
type zeros struct{}

func (zeros) Read(p []byte) (int, error) {
	clear(p)
	return len(p), nil
}

// dontFragment makes the kernel send packets whole or not at all, whatever it believes about the path.
func dontFragment(conn syscall.Conn) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return
	}
	_ = raw.Control(func(fd uintptr) { // a socket of one family refuses the option of the other
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IP, unix.IP_MTU_DISCOVER, unix.IP_PMTUDISC_PROBE)
		_ = unix.SetsockoptInt(int(fd), unix.IPPROTO_IPV6, unix.IPV6_MTU_DISCOVER, unix.IPV6_PMTUDISC_PROBE)
	})
}
