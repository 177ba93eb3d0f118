//go:build linux

// Package page_test looks at the status page with a real browser, Chromium: with its script
// and without, on a phone and a desk, in the light and in the dark. It runs in namespaces of
// its own, in which there is nothing but the server: whatever a page would load from elsewhere
// fails, and is an error besides.
package page_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/chromedp/cdproto/accessibility"
	"github.com/chromedp/cdproto/cdp"
	"github.com/chromedp/cdproto/dom"
	"github.com/chromedp/cdproto/emulation"
	"github.com/chromedp/cdproto/input"
	"github.com/chromedp/cdproto/log"
	"github.com/chromedp/cdproto/network"
	"github.com/chromedp/cdproto/page"
	"github.com/chromedp/cdproto/runtime"
	"github.com/chromedp/chromedp"
	"github.com/miekg/dns"

	"epdns/test/netns"
	"epdns/test/run"
)

const (
	dnsAddr = "127.0.0.1:53"
	root    = "http://127.0.0.1:9153/"

	longest = 3 * time.Minute // for a browser, on a machine that has other things to do
)

// manifests is the directory that epdns reads, browser what tabs are opened in.
var (
	manifests string
	browser   context.Context
)

func TestMain(m *testing.M) {
	netns.Main(netns.Tests{
		Programs: []netns.Program{{Name: "chromium", Package: "chromium"}},
		Prepare: func(dir string) error {
			_, err := run.Build(context.Background(), "../..", dir)
			return err
		},
		Run: func(dir string) (int, error) {
			manifests = filepath.Join(dir, "manifests")
			if err := os.CopyFS(manifests, os.DirFS("testdata")); err != nil {
				return 0, err
			}
			server, err := run.Start(exec.Command(filepath.Join(dir, "epdns"), "serve", "--lameduck=0", "--manifests="+manifests, "--listen="+dnsAddr, "--http=127.0.0.1:9153"))
			if err != nil {
				return 0, err
			}
			defer server.Stop()
			ctx, cancel := context.WithTimeout(context.Background(), run.Grace)
			defer cancel()
			if err := server.Until(ctx, 20*time.Millisecond, func() error { _, err := run.Get(root + "readyz"); return err }); err != nil {
				return 0, err
			}
			if err := ask(); err != nil {
				return 0, err
			}
			// As root, and in a namespace, Chromium has no sandbox of its own.
			flags := append(chromedp.DefaultExecAllocatorOptions[:], chromedp.ExecPath("chromium"), chromedp.WSURLReadTimeout(longest), chromedp.NoSandbox, chromedp.DisableGPU,
				chromedp.UserDataDir(filepath.Join(dir, "profile")), chromedp.Flag("disable-quic", true), chromedp.Flag("disable-component-update", true),
				chromedp.Flag("disable-dev-shm-usage", true), chromedp.Flag("force-color-profile", "srgb"), chromedp.Flag("hide-scrollbars", false))
			allocator, stop := chromedp.NewExecAllocator(context.Background(), flags...)
			defer stop()
			var end context.CancelFunc
			browser, end = chromedp.NewContext(allocator)
			defer end()
			if err := chromedp.Do(browser); err != nil {
				return 0, fmt.Errorf("start chromium: %w", err)
			}
			return m.Run(), nil
		},
	})
}

// ask asks for some names, so that there is something to see.
func ask() error {
	for i, name := range []string{"web.shop", "web.shop", "web.shop", "web.shop", "web.shop", "api.shop", "api.shop", "api.shop", "_pg._tcp.db.data", "_pg._tcp.db.data", "jobs.shop", "wbe.shop"} {
		m := new(dns.Msg).SetQuestion(name+".registry.local.", dns.TypeA)
		if strings.HasPrefix(name, "_") {
			m.Question[0].Qtype = dns.TypeSRV
		}
		if _, _, err := (&dns.Client{Net: []string{"udp", "tcp"}[i%2]}).Exchange(m, dnsAddr); err != nil {
			return err
		}
	}
	return nil
}

// tab is one of the browser.
type tab struct {
	context.Context
	t *testing.T

	mu       sync.Mutex
	requests []string
	said     []string // by the console, or of errors
	right    []string // words of what may be said
}

// open opens a tab of a size, and at the end of the test sees that nothing was loaded from
// elsewhere, and nothing went wrong.
func open(t *testing.T, width, height int64, actions ...action) *tab {
	t.Helper()
	first, stop := chromedp.NewContext(browser)
	if err := chromedp.Do(first); err != nil {
		t.Fatal(err)
	}
	ctx, late := context.WithTimeoutCause(first, longest, fmt.Errorf("after %v", longest))
	b := &tab{Context: ctx, t: t}
	if err := chromedp.Listen(ctx, func(e any) {
		b.mu.Lock()
		defer b.mu.Unlock()
		switch e := e.(type) {
		case *network.EventRequestWillBeSent:
			b.requests = append(b.requests, e.Request.URL)
		case *runtime.EventConsoleAPICalled:
			b.said = append(b.said, fmt.Sprintf("console: %s", e.Type))
		case *runtime.EventExceptionThrown:
			b.said = append(b.said, e.ExceptionDetails.Text)
		case *log.EventEntryAdded:
			b.said = append(b.said, e.Entry.Text)
		}
	}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		b.mu.Lock()
		for _, u := range b.requests {
			if !strings.HasPrefix(u, root) {
				t.Errorf("%s was asked for", u)
			}
		}
		if len(b.requests) == 0 {
			t.Error("nothing was asked for")
		}
		for _, text := range b.said {
			if slices.ContainsFunc(b.right, func(words string) bool { return strings.Contains(text, words) }) {
				continue
			}
			t.Errorf("the browser says: %s", text)
		}
		b.mu.Unlock()
		stop()
		late()
	})
	b.run(append([]action{call(network.Enable, network.EnableParams{}), call(runtime.Enable, cdp.Empty{}), call(log.Enable, cdp.Empty{}),
		screen(width, height)}, actions...)...)
	return b
}

// screen has the tab on one of this size.
func screen(width, height int64) action {
	return call(emulation.SetDeviceMetricsOverride, emulation.SetDeviceMetricsOverrideParams{Width: width, Height: height, DeviceScaleFactor: 1, Mobile: width < 600})
}

// expected has the browser be right to say what has these words, whenever that comes.
func (b *tab) expected(words string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.right = append(b.right, words)
}

type action = chromedp.Action[chromedp.Void]

// call is a command of the protocol of which the result is of no interest.
func call[P, R any](command cdp.Command[P, R], params P) action {
	return chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
		_, err := cdp.Call(ctx, t, command, params)
		return err
	})
}

func (b *tab) run(actions ...action) {
	b.t.Helper()
	if err := chromedp.Do(b, actions...); err != nil {
		b.t.Fatal(err)
	}
}

// get is what an action returns.
func get[T any](b *tab, a chromedp.Action[T]) T {
	b.t.Helper()
	v, err := chromedp.Run(b, a)
	if err != nil {
		b.t.Fatal(err)
	}
	return v
}

func visit(path string) action {
	return chromedp.Steps(chromedp.Navigate(root+path), chromedp.WaitReady(chromedp.CSS("footer")))
}

// until waits for an expression to be true.
func (b *tab) until(expression string) {
	b.t.Helper()
	run.Eventually(b.t, func() error {
		if ok, err := chromedp.Run(b, chromedp.Evaluate[bool](expression)); err != nil || ok {
			return err
		}
		text, _ := chromedp.Run(b, chromedp.Evaluate[string](`document.body.innerText`))
		return fmt.Errorf("%s is not so, in:\n%s", expression, text)
	})
}

// shoot keeps a picture in build/.
func (b *tab) shoot(name string) {
	b.t.Helper()
	size := get(b, chromedp.Evaluate[[2]float64](`[document.documentElement.clientWidth, document.documentElement.scrollHeight]`))
	png := get(b, func(ctx context.Context, t *chromedp.Target) ([]byte, error) {
		shot, err := cdp.Call(ctx, t, page.CaptureScreenshot, page.CaptureScreenshotParams{
			CaptureBeyondViewport: new(true), Clip: &page.Viewport{Width: size[0], Height: size[1], Scale: 1},
		})
		return shot.Data, err
	})
	dir := "../../build"
	if err := errors.Join(os.MkdirAll(dir, 0o755), os.WriteFile(filepath.Join(dir, "page-"+name+".png"), png, 0o644)); err != nil {
		b.t.Fatal(err)
	}
}

func scheme(name string) action {
	return call(emulation.SetEmulatedMedia, emulation.SetEmulatedMediaParams{Features: []*emulation.MediaFeature{{Name: "prefers-color-scheme", Value: name}}})
}

// paths are the pages.
var paths = map[string]string{
	"status":   "",
	"services": "services",
	"service":  "service?name=shop/web",
	"ask":      "ask?from=zone-b&name=shop/web&type=A",
	"left":     "ask?from=192.0.2.31&name=shop/jobs&type=SRV",
	"mail":     "service?name=shop/mail", // with markup in the name of a pod
	"wrong":    "ask?from=mars&name=shop/web",
}

// Nothing is wider than the screen, all can be read, and all that can be used has a name.
func TestLooks(t *testing.T) {
	for name, path := range paths {
		t.Run(name, func(t *testing.T) {
			b := open(t, 1280, 800, visit(path))
			b.until(`!document.body.dataset.live || document.getElementById("live").textContent === "Live"`)
			for _, size := range []struct {
				name          string
				width, height int64
			}{{"phone", 390, 844}, {"tablet", 800, 1100}, {"desk", 1280, 800}} {
				for _, light := range []string{"light", "dark"} {
					b.run(screen(size.width, size.height), scheme(light))
					if width := get(b, chromedp.Evaluate[int64](`document.documentElement.scrollWidth`)); width > size.width {
						t.Errorf("%s: it is %d wide", size.name, width)
					}
					for _, text := range get(b, chromedp.Evaluate[[]string](contrast)) {
						t.Errorf("%s, %s: cannot be read: %s", size.name, light, text)
					}
					if ground := get(b, chromedp.Evaluate[int](`Number(getComputedStyle(document.body).backgroundColor.match(/\d+/)[0])`)); ground < 128 != (light == "dark") {
						t.Errorf("%s, %s: the ground has %d of red", size.name, light, ground)
					}
					if size.name == "phone" == (light == "dark") && size.name != "tablet" {
						b.shoot(name + "-" + size.name + "-" + light)
					}
				}
			}
			b.named()
			switch name {
			case "mail":
				b.until(`document.body.innerText.includes("<b>mail</b>") && !document.querySelector("b")`)
			case "wrong":
				b.until(`document.querySelector("[role=alert]")?.textContent.includes("is no address")`)
				b.expected("status of 400")
			}
		})
	}
}

// contrast are the texts whose contrast to what is behind them is less than 4.5 to 1 (WCAG
// 2.2, 1.4.3).
const contrast = `(() => {
	const parse = (c) => c.match(/[\d.]+/g).map(Number);
	const luminance = (c) => {
		const [r, g, b] = c.map((v) => (v /= 255) <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4);
		return 0.2126 * r + 0.7152 * g + 0.0722 * b;
	};
	const behind = (e) => {
		for (; e; e = e.parentElement) {
			const c = parse(getComputedStyle(e).backgroundColor);
			if (c.length === 3 || c[3] === 1) return c.slice(0, 3);
		}
		return [255, 255, 255];
	};
	const bad = [];
	const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
	while (walker.nextNode()) {
		const e = walker.currentNode.parentElement;
		if (!walker.currentNode.data.trim() || !e.getClientRects().length) continue;
		const [a, b] = [luminance(parse(getComputedStyle(e).color).slice(0, 3)), luminance(behind(e))];
		const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
		if (ratio < 4.5) bad.push(ratio.toFixed(2) + " " + walker.currentNode.data.trim());
	}
	return bad;
})()`

// named sees that all that can be used has a name for who does not see it.
func (b *tab) named() {
	b.t.Helper()
	used := 0
	tree := get(b, func(ctx context.Context, t *chromedp.Target) (accessibility.GetFullAXTreeResult, error) {
		return cdp.Call(ctx, t, accessibility.GetFullAXTree, accessibility.GetFullAXTreeParams{})
	})
	for _, n := range tree.Nodes {
		var role, name string
		if n.Ignored || n.Role == nil || json.Unmarshal(n.Role.Value, &role) != nil {
			continue
		}
		if !slices.Contains([]string{"link", "button", "textbox", "searchbox", "combobox", "checkbox", "image", "navigation", "region"}, role) {
			continue
		}
		used++
		if n.Name == nil || json.Unmarshal(n.Name.Value, &name) != nil || strings.TrimSpace(name) == "" {
			b.t.Errorf("a %s has no name", role)
		}
	}
	if used < 5 {
		b.t.Errorf("there are only %d things to use", used)
	}
}

// A change of a manifest is on the page a moment later, without a reload, and who uses the
// keyboard stays where he is.
func TestLiveUpdate(t *testing.T) {
	b := open(t, 1280, 800, visit("service?name=shop/web"))
	b.until(`document.getElementById("live").textContent === "Live"`)
	b.run(chromedp.Evaluate[chromedp.Void](`window.same = true; document.querySelector("#service-head dd a").focus()`))
	path := filepath.Join(manifests, "web.yaml")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	defer os.WriteFile(path, text, 0o644)
	more := strings.TrimRight(string(text), "\n") + "\n- {addresses: [10.20.4.29], nodeName: node-c1, zone: zone-c, conditions: {ready: true}, targetRef: {kind: Pod, name: web-new}}\n"
	if err := os.WriteFile(path, []byte(more), 0o644); err != nil {
		t.Fatal(err)
	}
	b.until(`document.querySelector("#service-endpoints").innerText.includes("10.20.4.29")`)
	b.until(`document.querySelector("#service-head").innerText.includes("6 of 6 endpoints ready")`)
	b.until(`window.same && document.activeElement.textContent === "web.shop.registry.local."`)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	b.until(`!document.querySelector("#service-endpoints").innerText.includes("10.20.4.29")`)
}

// What is asked is on the page while it is looked at.
func TestTopQuestions(t *testing.T) {
	b := open(t, 1280, 800, visit(""))
	if err := ask(); err != nil {
		t.Fatal(err)
	}
	b.until(`["web.shop.registry.local. A", "_pg._tcp.db.data.registry.local. SRV", "wbe.shop.registry.local. A"].every((q) => document.querySelector("#top").innerText.includes(q))`)
	b.until(`document.querySelector("#top tr:has(a[href*=wbe])").innerText.includes("NXDOMAIN")`)
}

// The form is filled and sent by keys alone, and tells who gets what.
func TestAsk(t *testing.T) {
	b := open(t, 1280, 800, visit(""), chromedp.KeyEvent("\t"))
	b.until(`document.activeElement.className === "skip" && document.activeElement.getBoundingClientRect().left >= 0`)
	b.run(chromedp.SendKeys(chromedp.CSS("#from"), "node-b1"), chromedp.SendKeys(chromedp.CSS("#name"), "shop/web\r"))
	b.until(`location.pathname === "/ask" && document.querySelector("h2")?.textContent === "What they get, in this order"`)
	b.until(`[...document.querySelectorAll("tbody th")].slice(0, 2).every((th) => th.textContent.includes("10.20.3.2"))`)
	b.until(`document.body.innerText.includes("192.0.2.21: node node-b1, zone zone-b")`)
	b.until(`document.querySelector("#from").value === "node-b1" && document.querySelector("#name").value === "shop/web"`)
	b.run(chromedp.SetValue(chromedp.CSS("#from"), "mars"), chromedp.Click(chromedp.CSS("button")))
	b.until(`document.querySelector("[role=alert]")?.textContent.includes("is no address")`)
	b.expected("status of 400")
}

// Where scripts are off, all is there, and the form works.
func TestWithoutScript(t *testing.T) {
	b := open(t, 390, 844, call(emulation.SetScriptExecutionDisabled, emulation.SetScriptExecutionDisabledParams{Value: true}))
	// shows says whether these words are there. The document may be replaced meanwhile.
	shows := func(words string) error {
		html, err := chromedp.Run(b, func(ctx context.Context, t *chromedp.Target) (string, error) {
			document, err := cdp.Call(ctx, t, dom.GetDocument, dom.GetDocumentParams{})
			if err != nil {
				return "", err
			}
			html, err := cdp.Call(ctx, t, dom.GetOuterHTML, dom.GetOuterHTMLParams{NodeID: document.Root.NodeID})
			return html.OuterHTML, err
		})
		if err == nil && !strings.Contains(html, words) {
			err = fmt.Errorf("no %q in %s", words, html)
		}
		return err
	}
	for name, words := range map[string]string{"status": "Serving, up to date", "services": "service?name=shop%2fmail", "service": "10.20.3.22", "ask": "What was decided"} {
		b.run(chromedp.Navigate(root + paths[name]))
		run.Eventually(t, func() error { return shows(words) })
	}
	b.run(chromedp.Navigate(root + "ask"))
	run.Eventually(t, func() error {
		return chromedp.Do(b, chromedp.Func(func(ctx context.Context, t *chromedp.Target) error {
			document, err := cdp.Call(ctx, t, dom.GetDocument, dom.GetDocumentParams{})
			if err != nil {
				return err
			}
			field, err := cdp.Call(ctx, t, dom.QuerySelector, dom.QuerySelectorParams{NodeID: document.Root.NodeID, Selector: "#name"})
			if err != nil {
				return err
			}
			_, err = cdp.Call(ctx, t, dom.Focus, dom.FocusParams{NodeID: field.NodeID})
			return err
		}))
	})
	b.run(call(input.InsertText, input.InsertTextParams{Text: "shop/api"}),
		call(input.DispatchKeyEvent, input.DispatchKeyEventParams{Type: input.DispatchKeyEventTypeKeyDown, Key: "Enter", WindowsVirtualKeyCode: 13, Text: "\r"}))
	run.Eventually(t, func() error { return shows("10.20.4.31") })
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, u := range b.requests {
		if p, err := url.Parse(u); err != nil || p.Path == "/live" {
			t.Errorf("%s was asked for without a script", u)
		}
	}
}
