// SPDX-FileCopyrightText: SAP SE or an SAP affiliate company and Gardener contributors
//
// SPDX-License-Identifier: Apache-2.0

package machines

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/crypto/ssh"
)

// Boot is what a machine is booted with.
type Boot struct {
	// Disk has the operating system, Work the home of the user dev.
	Disk Disk
	Work string
	// Memory is in MiB.
	Memory int
	// Accelerator is kvm or tcg.
	Accelerator string
	// Folder is for what is written: overlays of the disks, and console.log.
	Folder string
	Key    ssh.Signer
}

// VM is a machine that runs.
type VM struct {
	boot    Boot
	process *exec.Cmd
	exited  chan struct{}
	address string

	mutex  sync.Mutex
	client *ssh.Client
}

// patience is how long a machine may take from power-on until it lets somebody log in, with two emulated processors on a busy
// day.
const patience = 5 * time.Minute

// Start boots a machine. Both disks are left as they are: what the machine writes goes into overlays. It ends with ctx, or with
// this process, however that ends.
func Start(ctx context.Context, boot Boot) (*VM, error) {
	if err := os.MkdirAll(boot.Folder, 0o755); err != nil { // #nosec G301 -- build output.
		return nil, fmt.Errorf("starting a machine: %w", err)
	}
	var drives []string
	for name, base := range map[string]string{"vda": boot.Disk.Root, "vdb": boot.Work} {
		overlay := filepath.Join(boot.Folder, name+".qcow2")
		if err := run(ctx, "qemu-img", "create", "-q", "-f", "qcow2", "-F", "raw", "-b", base, overlay); err != nil {
			return nil, err
		}
		// What a machine writes is of no use after the test, so that nothing need be on a platter.
		drive := "if=none,format=qcow2,cache=unsafe,discard=unmap,id=" + name + ",file=" + overlay
		device := "virtio-blk-pci,drive=" + name
		// In this order they become /dev/vda and /dev/vdb.
		if name == "vda" {
			drives = append([]string{"-drive", drive, "-device", device}, drives...)
		} else {
			drives = append(drives, "-drive", drive, "-device", device)
		}
	}
	port, err := freePort(ctx)
	if err != nil {
		return nil, err
	}
	cpu := map[string]string{"kvm": "host", "tcg": "max"}[boot.Accelerator]
	accelerator := map[string]string{"kvm": "kvm", "tcg": "tcg,thread=multi,tb-size=1024"}[boot.Accelerator]
	args := append([]string{
		"-accel", accelerator, "-cpu", cpu, "-smp", strconv.Itoa(runtime.NumCPU()), "-m", strconv.Itoa(boot.Memory),
		"-display", "none", "-monitor", "none", "-serial", "file:" + filepath.Join(boot.Folder, "console.log"),
		"-kernel", boot.Disk.Kernel, "-initrd", boot.Disk.Initrd, "-append", "console=ttyS0 root=/dev/vda rw quiet fsck.mode=skip",
		"-nic", fmt.Sprintf("user,model=virtio-net-pci,hostfwd=tcp:127.0.0.1:%d-:22", port),
		"-device", "virtio-rng-pci",
	}, drives...)
	process := exec.Command("qemu-system-x86_64", args...) // #nosec G204 -- the test's own arguments; it is killed by the goroutine below.
	var stderr bytes.Buffer
	process.Stderr = &stderr
	// A ctrl-C is for the test, which then ends the machine; and should the test be killed, the kernel does.
	process.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	vm := &VM{boot: boot, process: process, exited: make(chan struct{}), address: fmt.Sprintf("127.0.0.1:%d", port)}
	started := make(chan error)
	go func() {
		// The kernel sends the signal when the thread ends that started the process, so this thread has to live as long.
		runtime.LockOSThread()
		defer runtime.UnlockOSThread()
		err := process.Start()
		started <- err
		if err == nil {
			_ = process.Wait()
			close(vm.exited)
		}
	}()
	if err := <-started; err != nil {
		return nil, fmt.Errorf("starting a machine: %w", err)
	}
	context.AfterFunc(ctx, vm.Stop)
	if err := vm.WaitUp(ctx); err != nil {
		vm.Stop()
		return nil, errors.Join(err, errors.New(strings.TrimSpace(stderr.String())))
	}
	return vm, nil
}

// Stop takes the power away.
func (vm *VM) Stop() {
	_ = vm.process.Process.Kill()
	<-vm.exited
	for _, name := range []string{"vda", "vdb"} {
		_ = os.Remove(filepath.Join(vm.boot.Folder, name+".qcow2"))
	}
}

// WaitUp waits until the machine has booted and lets the test log in as root.
func (vm *VM) WaitUp(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	config := &ssh.ClientConfig{
		User: "root", Auth: []ssh.AuthMethod{ssh.PublicKeys(vm.boot.Key)},
		HostKeyCallback: ssh.InsecureIgnoreHostKey(), // #nosec G106 -- a forwarded port of the loopback device.
	}
	var last error
	for {
		client, err := dial(ctx, vm.address, config)
		if err == nil {
			vm.mutex.Lock()
			vm.client = client
			vm.mutex.Unlock()
			// Who logs in early would compare a machine that still boots.
			_, err = vm.Output(ctx, "systemctl is-system-running --wait || systemctl list-units --failed")
			return err
		}
		last = err
		select {
		case <-vm.exited:
			return errors.New("the machine ended while it booted; see console.log")
		case <-ctx.Done():
			return fmt.Errorf("the machine does not let anybody log in: %w; see console.log", last)
		case <-time.After(500 * time.Millisecond):
		}
	}
}

// dial logs in. QEMU accepts connections also while nobody in the machine does, and keeps those to a machine that has rebooted, so
// the handshake has to end in time.
func dial(ctx context.Context, address string, config *ssh.ClientConfig) (*ssh.Client, error) {
	connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	deadline := time.Now().Add(30 * time.Second)
	if end, ok := ctx.Deadline(); ok && end.Before(deadline) {
		deadline = end
	}
	err = connection.SetDeadline(deadline)
	if err == nil {
		var login ssh.Conn
		var channels <-chan ssh.NewChannel
		var requests <-chan *ssh.Request
		if login, channels, requests, err = ssh.NewClientConn(connection, address, config); err == nil {
			return ssh.NewClient(login, channels, requests), connection.SetDeadline(time.Time{})
		}
	}
	return nil, errors.Join(err, connection.Close())
}

// Run runs a script with bash as root and writes its output to out. An *ssh.ExitError has its exit code.
func (vm *VM) Run(ctx context.Context, script string, stdin io.Reader, out io.Writer) error {
	vm.mutex.Lock()
	client := vm.client
	vm.mutex.Unlock()
	session, err := client.NewSession()
	if err != nil {
		return fmt.Errorf("logging in: %w", err)
	}
	defer func() { _ = session.Close() }()
	// Both are copied at the same time.
	both := &oneAtATime{out: out}
	session.Stdin, session.Stdout, session.Stderr = stdin, both, both
	defer context.AfterFunc(ctx, func() { _ = session.Signal(ssh.SIGTERM); _ = session.Close() })()
	// Debian's bash takes a shell below sshd for one that people type into, and reads files that its option -u stumbles over.
	if err := session.Run("bash -lc " + quote("unset SSH_CLIENT\n"+script)); err != nil {
		return errors.Join(err, context.Cause(ctx))
	}
	return nil
}

type oneAtATime struct {
	mutex sync.Mutex
	out   io.Writer
}

func (w *oneAtATime) Write(p []byte) (int, error) {
	w.mutex.Lock()
	defer w.mutex.Unlock()
	return w.out.Write(p)
}

// Output runs a script and returns what it printed.
func (vm *VM) Output(ctx context.Context, script string) (string, error) {
	var out bytes.Buffer
	if err := vm.Run(ctx, script, nil, &out); err != nil {
		return out.String(), fmt.Errorf("%w: %s", err, tail(out.String(), 10))
	}
	return out.String(), nil
}

// Reboot restarts the machine and waits until it is up again: in order by systemd, or at once, as if the power failed.
func (vm *VM) Reboot(ctx context.Context, orderly bool) error {
	before, err := vm.Output(ctx, "cat /proc/sys/kernel/random/boot_id")
	if err != nil {
		return err
	}
	// The machine does not stay to answer. Without power it does not even end the connection, which is closed below.
	asked := make(chan struct{})
	go func() {
		defer close(asked)
		_ = vm.Run(ctx, map[bool]string{true: "systemctl reboot", false: "echo b >/proc/sysrq-trigger"}[orderly], nil, io.Discard)
	}()
	select {
	case <-asked:
	case <-time.After(10 * time.Second):
	}
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	for {
		vm.mutex.Lock()
		_ = vm.client.Close()
		vm.mutex.Unlock()
		if err := vm.WaitUp(ctx); err != nil {
			return err
		}
		if after, err := vm.Output(ctx, "cat /proc/sys/kernel/random/boot_id"); err == nil && after != before {
			return nil
		}
		if err := ctx.Err(); err != nil {
			return fmt.Errorf("rebooting: %w", err)
		}
	}
}

// Copy writes a file into the machine.
func (vm *VM) Copy(ctx context.Context, content io.Reader, path string) error {
	var out bytes.Buffer
	if err := vm.Run(ctx, "cat >"+quote(path)+" && chmod 755 "+quote(path), content, &out); err != nil {
		return fmt.Errorf("copying %s: %w: %s", path, err, out.String())
	}
	return nil
}

// Accelerator is kvm where that boots a stock kernel, and tcg elsewhere: there are machines whose /dev/kvm serves only kernels
// that were made for it.
func Accelerator(ctx context.Context, disk Disk) string {
	if _, err := os.Stat("/dev/kvm"); err != nil {
		return "tcg"
	}
	ctx, cancel := context.WithTimeout(ctx, 15*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, "qemu-system-x86_64", "-accel", "kvm", "-cpu", "host", "-m", "1024", "-display", "none", // #nosec G204 -- files of this package.
		"-monitor", "none", "-serial", "stdio", "-nic", "none", "-no-reboot",
		"-kernel", disk.Kernel, "-initrd", disk.Initrd, "-append", "console=ttyS0 panic=-1 root=/dev/null")
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	found := &finder{text: "Linux version", found: cancel}
	cmd.Stdout = found
	_ = cmd.Run()
	if found.done {
		return "kvm"
	}
	return "tcg"
}

// finder calls found once text was written to it.
type finder struct {
	text   string
	found  func()
	done   bool
	buffer bytes.Buffer
}

func (f *finder) Write(p []byte) (int, error) {
	f.buffer.Write(p)
	if !f.done && strings.Contains(f.buffer.String(), f.text) {
		f.done = true
		f.found()
	}
	return len(p), nil
}

func freePort(ctx context.Context) (int, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("looking for a free port: %w", err)
	}
	defer func() { _ = listener.Close() }()
	return listener.Addr().(*net.TCPAddr).Port, nil
}

// quote makes a word of a shell's.
func quote(text string) string { return "'" + strings.ReplaceAll(text, "'", `'\''`) + "'" }

// tail is the end of an output.
func tail(text string, lines int) string {
	all := strings.Split(strings.TrimSpace(text), "\n")
	return strings.Join(all[max(0, len(all)-lines):], "\n")
}
