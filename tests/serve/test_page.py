"""The page at /, driven in a real browser."""

from __future__ import annotations

import json
import os
import shutil
import threading
from contextlib import contextmanager
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx
import pyarrow as pa
import pytest

from browsing import Visit, expect, needed, serving, wait_for
from coldhash import MFDCF, FeaturePlan, Ids, read
from coldhash.registry import MODELS
from firefox import firefox

playwright_api = needed("playwright.sync_api")
# not by its own classes: they read the script in the encoding of the locale
AXE = Path(needed("axe_playwright_python").__file__).with_name("axe.min.js")
CHROMIUM = shutil.which("chromium") or shutil.which("google-chrome")
pytestmark = pytest.mark.slow  # a browser
PHONE = {"width": 390, "height": 844}
# axe takes a text on its way for one with too little contrast
AT_REST = "document.getAnimations().length === 0"


@pytest.fixture(scope="module")
def browser():
    if CHROMIUM is None:
        if os.environ.get("CI") == "true":
            pytest.fail("no Chromium is installed, so the page is not tested")
        pytest.skip("no Chromium is installed")
    with playwright_api.sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=CHROMIUM, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def sample():
    return read("sample", n_users=1000, n_items=200)


@pytest.fixture(scope="module")
def model_file(sample, tmp_path_factory):
    path = tmp_path_factory.mktemp("page") / "sample.coldhash"
    MFDCF(n_bits=64).fit(sample).save(path)
    return path


@pytest.fixture(scope="module")
def url(model_file):
    with serving(model_file) as (url, _):
        yield url


@pytest.fixture
def visit(browser):
    """Open the page of a server; at the end, nothing may have left it or been complained of."""
    visits, contexts = [], []

    def start(url, **options):
        contexts.append(browser.new_context(**options))
        visits.append(Visit(contexts[-1].new_page(), url))
        return visits[-1]

    yield start
    for each in visits:
        origins = {urlsplit(url)[:2] for url in each.requests if url != "about:blank"}
        assert origins <= {urlsplit(each.url)[:2], each.elsewhere}
        assert each.complaints == []
    for context in contexts:
        context.close()


def test_answers_change_list_and_bits_and_live_in_the_address(url, visit):
    one = visit(url).open()
    page = one.page
    expect(page.locator("#difference")).to_contain_text("both lists are the same")
    assert one.texts("#mine .title") == one.texts("#beside .title")
    popular, unknown = one.texts("#mine .title"), one.bits()
    assert len(unknown) == 56
    assert page.locator("#bits .changed").count() == 0

    one.do(lambda: page.get_by_label("Age").fill("70"))
    answer = one.do(lambda: page.get_by_label("Occupation").select_option("retired"))
    assert answer["fallback"] is False
    assert one.texts("#mine .title") != popular
    assert one.texts("#beside .title") == popular
    before = one.bits()
    assert before != unknown

    search = page.get_by_role("combobox", name="Something you know")
    search.press_sequentially("am")
    expect(page.locator("#found [role=option]").first).to_be_visible()
    search.press("ArrowDown")
    search.press("ArrowDown")
    chosen = page.locator("#found [aria-selected=true]")
    expect(chosen).to_have_id(search.get_attribute("aria-activedescendant"))
    title = chosen.locator(".title").inner_text()
    one.do(lambda: search.press("Enter"))
    rating = page.get_by_role("slider", name=f"Your rating of {title}")
    expect(rating).to_have_value("5")
    assert one.bits() != before
    one.do(lambda: rating.press("Home"))

    shown = one.texts("#mine .title"), one.bits(), one.texts("#rated .title")
    address = page.url
    page.reload()
    expect(page.locator("#mine > li")).to_have_count(10)
    expect(page.locator("#rated .title")).to_have_text(title)
    expect(page.get_by_label("Age")).to_have_value("70")
    expect(page.get_by_label("Occupation")).to_have_value("retired")
    expect(rating).to_have_value("1")
    assert (one.texts("#mine .title"), one.bits(), one.texts("#rated .title")) == shown
    assert page.url == address

    one.do(lambda: page.get_by_role("button", name=f"Remove {title}").click())
    one.do(lambda: page.get_by_role("button", name="Start over").click())
    assert one.texts("#mine .title") == popular
    assert one.bits() == unknown


def test_changed_bits_are_marked_and_said(url, visit):
    one = visit(url).open("#age=20&gender=male")
    before = one.bits()
    one.do(lambda: one.page.get_by_label("Age").fill("70"))
    marks = one.page.locator("#bits > span").evaluate_all(
        "bits => bits.map(bit => bit.classList.contains('changed'))"
    )
    differs = [old != new for old, new in zip(before, one.bits(), strict=True)]
    assert any(differs)
    assert marks == differs
    said = f"56 bits, {sum(differs)} changed"
    one.page.get_by_text("You, in bits").click()
    expect(one.page.get_by_role("img", name=said, exact=True)).to_be_visible()
    expect(one.page.locator("#news")).to_contain_text(said)
    expect(one.page.locator("#timing")).to_contain_text("The server took")
    expect(one.page.locator("#bars .value")).to_have_text("100 %")


def test_each_item_says_why(url, visit):
    one = visit(url).open("#age=20&history.5=5")
    row = one.page.locator("#mine > li").nth(1)
    with one.page.expect_response("**/v1/explain") as asked:
        row.locator("summary").press("Enter")
    why = row.locator(".why")
    positive = [part for part in asked.value.json()["contributions"].items() if part[1] > 0]
    most = max(positive, key=lambda part: part[1])[0]
    age = next(
        each for each in httpx.get(f"{url}/v1/model").json()["fields"] if each["name"] == "age"
    )
    rated = httpx.get(f"{url}/v1/items", params={"search": "5", "limit": 100}).json()["items"]
    titles = {f"rated {item['item_id']}": item["title"] for item in rated}
    named = {age["group"]: "age"} | {name: f"{titles[name]} in your history" for name in titles}
    expect(why.locator("p").first).to_contain_text(f"Because of {named.get(most, most)}")
    expect(why).to_contain_text("By popularity alone it would be")
    expect(why.locator(".bars li")).to_have_count(len(asked.value.json()["contributions"]))
    expect(why.locator(".bars .label").get_by_text("Popularity", exact=True)).to_be_visible()
    item_id = row.get_attribute("data-item-id")
    similar = httpx.get(f"{url}/v1/items/{item_id}/similar", params={"k": 5}).json()["items"]
    expect(why.locator(".similar li")).to_have_text([item["title"] for item in similar])
    title = row.locator(".title").inner_text()
    one.do(lambda: why.get_by_role("button", name="rate it").click())
    expect(one.page.get_by_role("slider", name=f"Your rating of {title}")).to_be_focused()
    assert f"history.{item_id}=5" in one.page.url


def test_a_slider_goes_from_popular_to_personal(url, visit):
    one = visit(url).open("#age=70&occupation=retired")
    page, slider = one.page, one.page.get_by_role("slider", name="Popular or personal")
    expect(slider).to_have_value("0")
    expect(slider).to_have_attribute("aria-valuetext", "popularity counts 100 %")
    popular = one.texts("#mine .title")
    summary = page.locator("#mine > li").first.locator("summary")
    summary.press("Enter")
    part = page.locator(".why .bars li", has_text="Popularity")
    expect(part).to_be_visible()

    answer = one.do(lambda: slider.press("End"))
    expect(slider).to_be_focused()
    expect(slider).to_have_attribute("aria-valuetext", "popularity counts 0 %")
    assert page.url.endswith("&request.popularity=0")
    person = {"age": 70, "occupation": "retired"}
    asked = {"user": person, "k": 10, "popularity": 0, "fields": ["genres", "year"]}
    assert answer == httpx.post(f"{url}/v1/recommend", json=asked).json()
    assert one.texts("#mine .title") != popular

    one.do(lambda: slider.press("ArrowLeft"))
    assert page.url.endswith("&request.popularity=0.05")
    shown = one.texts("#mine .title")
    page.reload()
    expect(page.locator("#mine > li")).to_have_count(10)
    expect(slider).to_have_value("0.95")
    assert one.texts("#mine .title") == shown

    with page.expect_response("**/v1/explain") as explained:
        page.locator("#mine > li").first.locator("summary").press("Enter")
    assert explained.value.request.post_data_json["popularity"] == 0.05
    one.do(lambda: page.get_by_role("button", name="Start over").click())
    expect(slider).to_have_value("0")
    assert "popularity" not in page.url


def test_moves_against_popularity_are_those_of_the_two_lists(url, visit):
    one = visit(url).open()
    answer = one.do(lambda: one.page.get_by_label("Occupation").select_option("retired"))
    everyone = httpx.post(f"{url}/v1/recommend", json={"user": {}, "k": 10}).json()
    popular = [item["item_id"] for item in everyone["items"]]
    mine = [item["item_id"] for item in answer["items"]]
    for item_id, mark in zip(mine, one.texts("#mine .badge > [aria-hidden]"), strict=True):
        up = popular.index(item_id) - mine.index(item_id) if item_id in popular else None
        arrow = "▲" if up and up > 0 else "▼"
        assert mark == ("new" if up is None else "=" if up == 0 else f"{arrow} {abs(up)}")
    left_out = [at for at, item_id in enumerate(popular) if item_id not in mine]
    marks = one.texts("#beside .badge > [aria-hidden]")
    assert [at for at, mark in enumerate(marks) if mark == "left out"] == left_out
    assert left_out


def test_an_address_from_anybody_harms_nothing(url, visit):
    one = visit(url)
    image = "<img src=x onerror=alert(1)>"
    one.page.on("dialog", lambda dialog: one.complaints.append(dialog.message))
    one.open(
        f"#age=abc&gender=%3Cb%3E&nothing=1&history.5=99&history.=3&history.7=%00&%&==&__proto__=1"
        f"&history.{quote(image)}=4&history.__proto__=3&history.constructor=2&occupation=student"
        f"&request.popularity=2&request.popularity=x&request.popularity="
    )
    page = one.page
    expect(page.get_by_label("Occupation")).to_have_value("student")
    expect(page.get_by_label("Age")).to_have_value("")
    expect(page.get_by_label("Gender")).to_have_value("")
    assert one.texts("#rated .title") == [image, "__proto__", "constructor"]
    expect(page.locator("#rated .wrong")).to_have_text(["unknown to this model"] * 3)
    assert page.locator("main img").count() == 0
    assert "nothing" not in page.url
    assert "popularity" not in page.url

    page.evaluate("location.hash = '#age=44'")  # somebody pastes another link
    expect(page.get_by_label("Age")).to_have_value("44")
    expect(page.locator("#rated li")).to_have_count(0)


def test_a_server_that_is_gone_is_said_and_can_come_back(visit, model_file):
    with serving(model_file) as (url, process):
        one = visit(url).open()
        one.may_fail = True
        before = one.texts("#mine .title")
        process.terminate()
        process.wait()
        one.page.get_by_label("Age").fill("23")
        alert = one.page.get_by_role("alert")
        expect(alert).to_contain_text("The server does not answer")
        assert one.texts("#mine .title") == before
        assert "age=23" in one.page.url

    with serving(model_file, urlsplit(url).port):
        one.do(lambda: one.page.get_by_role("button", name="Try again").click())
        expect(alert).to_be_hidden()
        assert one.texts("#mine .title") != before


def test_what_the_server_refuses_is_said_beside_its_field(url, visit):
    one = visit(url).open()
    one.may_fail = True
    age = one.page.get_by_label("Age")
    age.fill("1e300")
    wrong = one.page.locator("#wrong-age")
    expect(wrong).to_have_text("not a number (a number, or null where it is unknown)")
    expect(age).to_have_attribute("aria-invalid", "true")
    one.do(lambda: age.fill("30"))
    expect(wrong).to_be_hidden()
    expect(age).not_to_have_attribute("aria-invalid", "true")


def test_a_server_that_wants_a_token_gets_it(live, visit, model_file):
    one = visit(live(model_file, COLDHASH_TOKEN="let me in").url)
    one.may_fail = True
    page = one.page
    page.goto(f"{one.url}/#age=23")
    expect(page.get_by_role("alert")).to_contain_text("This server needs a token")
    page.get_by_label("Token").fill("wrong")
    page.get_by_role("button", name="Use it").click()
    expect(page.get_by_role("alert")).to_contain_text("the token is wrong")
    page.get_by_label("Token").fill("let me in")
    page.get_by_role("button", name="Use it").click()
    expect(page.locator("#mine > li")).to_have_count(10)
    expect(page.get_by_role("alert")).to_be_hidden()
    expect(page.get_by_label("Age")).to_have_value("23")
    assert "let" not in page.url


def test_models_without_codes_or_titles_have_a_page(live, visit, sample, tmp_path):
    path = tmp_path / "popularity.coldhash"
    model = MODELS["popularity"]().fit(sample)
    replace(model, item_table=pa.table({})).save(path)
    one = visit(live(path).url).open()
    expect(one.page.locator("#code")).to_be_hidden()
    expect(one.page.locator("#dial")).to_be_hidden()
    assert set(one.texts("#mine .title")) < set(map(str, sample.ratings.items))


def violations(page):
    wait_for(page, AT_REST)
    page.evaluate(AXE.read_text(encoding="utf-8"))
    found = page.evaluate("axe.run()")["violations"]
    width = page.evaluate("[document.documentElement.scrollWidth, innerWidth]")
    return [each["id"] for each in found] + (["too wide"] if width[0] > width[1] else [])


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_nothing_in_any_state(scheme, url, visit, live, model_file):
    person = "age=23&gender=male&history.5=4&history.unknown=2"
    for width in (320, 390, 1280, 1920):
        size = {"width": width, "height": 844}
        one = visit(url, color_scheme=scheme, viewport=size, reduced_motion="reduce")
        page = one.open(f"#{person}").page
        page.locator("#mine summary").first.click()
        expect(page.locator(".why .similar")).to_be_visible()
        for summary in page.locator(".how summary").all():
            summary.click()
        page.get_by_role("combobox", name="Something").press_sequentially("a")
        expect(page.locator("#found [role=option]").first).to_be_visible()
        assert violations(page) == []
        one.open(f"#{person}&request.compare=1&other.age=60")
        expect(page.locator("#who button")).to_have_count(2)
        assert violations(page) == []
        one.may_fail = True
        page.get_by_label("Age").fill("1e300")
        expect(page.locator("#wrong-age")).to_be_visible()
        assert violations(page) == []
        page.route("**/v1/recommend", lambda route: route.abort())
        page.get_by_label("Age").fill("30")
        expect(page.get_by_role("alert")).to_be_visible()
        assert violations(page) == []
        page.route("**/v1/model", lambda route: None)
        page.reload()
        expect(page.locator("#loading")).to_be_visible()
        assert violations(page) == []
    one = visit(
        live(model_file, COLDHASH_TOKEN="let me in").url,
        color_scheme=scheme,
        viewport=PHONE,
        reduced_motion="reduce",
    )
    one.may_fail = True
    one.page.goto(one.url)
    expect(one.page.get_by_label("Token")).to_be_visible()
    assert violations(one.page) == []


def test_the_list_is_in_the_first_screen_of_a_phone_and_nothing_shifts(url, visit):
    one = visit(url, viewport=PHONE, reduced_motion="reduce")
    one.page.add_init_script(
        """new PerformanceObserver(list => {
            for (const entry of list.getEntries())
                if (!entry.hadRecentInput) window.shift = (window.shift ?? 0) + entry.value
        }).observe({type: "layout-shift", buffered: true})"""
    )
    for person in ("", "#age=70&occupation=retired&history.5=4&history.7=2"):
        page = one.open(person).page
        whole = page.locator("#mine > li").evaluate_all(
            "rows => rows.filter(row => row.getBoundingClientRect().bottom <= innerHeight).length"
        )
        assert whole >= 3, person
        one.do(lambda: one.page.get_by_label("Age").fill("31"))
        assert page.evaluate("scrollY") == 0
        assert page.evaluate("window.shift ?? 0") < 0.05


def test_two_people_are_compared_side_by_side(url, visit):
    one = visit(url, viewport=PHONE).open("#age=20")
    page = one.page
    page.get_by_role("button", name="Compare two people").click()
    expect(page.get_by_role("heading", name="About the second person")).to_be_visible()
    page.get_by_label("Age").fill("70")
    expect(page).to_have_url(f"{url}/#age=20&request.compare=1&other.age=70")
    people = [{"age": 20}, {"age": 70}]
    lists = [
        [
            item["title"]
            for item in httpx.post(f"{url}/v1/recommend", json={"user": user}).json()["items"]
        ]
        for user in people
    ]
    for place, titles in zip(("#mine", "#beside"), lists, strict=True):
        expect(page.locator(f"{place} .title")).to_have_text(titles)
    same = len(set(lists[0]) & set(lists[1]))
    expect(page.locator("#difference")).to_have_text(f"{same} of 10 are the same.")
    boxes = [page.locator(place).bounding_box() for place in ("#mine", "#beside")]
    assert boxes[0]["x"] + boxes[0]["width"] <= boxes[1]["x"]
    page.reload()
    expect(page.locator("#beside .title")).to_have_text(lists[1])
    page.get_by_role("button", name="Second person").click()
    expect(page.get_by_label("Age")).to_have_value("70")
    page.get_by_role("button", name="Compare two people").click()
    expect(page).to_have_url(f"{url}/#age=20")
    expect(page.get_by_role("heading", name="For everyone")).to_be_visible()


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")
def test_labels_images_and_the_figure_of_the_model_are_shown(visit, sample, tmp_path):
    labels = {
        "gender": {"female": "she"},
        "year": {str(year): "long ago" for year in range(1900, 2010)},
    }
    plan = sample.plan.model_copy(update={"labels": labels})
    model = MFDCF(n_bits=16).fit(replace(sample, plan=plan))
    with served_image() as image:
        addresses = [None, image, "javascript:alert(1)", f"{image}/missing"]
        table = model.item_table.append_column("poster", [addresses * (len(model.item_ids) // 4)])
        figure = {"mean": 0.2, "low": 0.1, "high": 0.3}
        row = {
            "given": 0,
            "model": figure,
            "popularity": {**figure, "mean": 0.16},
            "verdict": "tied",
        }
        report = {**model.report, "judged": {"users": 50, "k": 10, "rows": [row]}}
        path = tmp_path / "m.coldhash"
        replace(model, item_table=table, report=report).save(path)
        with serving(path) as (url, _):
            policy = httpx.get(url).headers["Content-Security-Policy"]
            assert policy.endswith("img-src 'self' https: http:")
            one = visit(url)
            one.elsewhere, one.may_fail = urlsplit(image)[:2], True
            page = one.open("#gender=female").page
            expect(page.get_by_label("Gender").locator(":checked")).to_have_text("she")
            card = httpx.get(f"{url}/v1/model").json()
            assert card["shown_fields"] == ["genres", "year"]
            wait_for(
                page,
                "document.querySelectorAll('#mine .image img').length > 0 && "
                "[...document.querySelectorAll('#mine .image img')].every(i => i.naturalWidth > 0)",
            )
            facts = one.texts("#mine .facts")
            assert all("|" not in text for text in facts)
            asked = {"user": {"gender": "female"}, "fields": ["year"]}
            years = [
                i["year"] for i in httpx.post(f"{url}/v1/recommend", json=asked).json()["items"]
            ]
            old = [year < 2010 for year in years]
            assert [text.endswith("long ago") for text in facts] == old
            page.locator("#mine summary").first.click()
            expect(page.locator(".why").first).to_contain_text("gender (she)")
            page.get_by_text("Is it better").click()
            expect(page.locator("#judged-text")).to_contain_text("Not measurably.")
            expect(page.locator("#judged-text")).to_contain_text(
                "1.25 times as many favourites of 50 people"
            )


@contextmanager
def served_image():
    """The address of an image on a server of its own."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(200 if self.path == "/one.svg" else 404)
            self.send_header("Content-Type", "image/svg+xml")
            self.end_headers()
            self.wfile.write(b'<svg xmlns="http://www.w3.org/2000/svg" width="9" height="9"/>')

        def log_message(self, *_):
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/one.svg"
        server.shutdown()
        thread.join()


@pytest.mark.filterwarnings("ignore::coldhash.errors.CodeCollapse")  # the answers mean nothing
def test_every_kind_of_field_has_its_control(visit, sample, tmp_path):
    plan = FeaturePlan.model_validate(
        {
            "users": {
                "person": {"age": "number", "city": "category"},
                "taste": {"likes": "multi-label", "about_me": "text", "embedding": "vector"},
            }
        }
    )
    n_users = len(sample.ratings.users)
    users = sample.users.append_column(
        "likes", [["tea|cats", "cats", "<b>", "tea|<b>"] * (n_users // 4)]
    )
    users = users.append_column("about_me", [["likes long walks", "reads a lot"] * (n_users // 2)])
    users = users.append_column("embedding", [[[0.5, 1.0], [1.0, 0.5]] * (n_users // 2)])
    path = tmp_path / "rich.coldhash"
    MFDCF(n_bits=16).fit(replace(sample, users=users, plan=plan)).save(path)
    with serving(path) as (url, _):
        one = visit(url).open("#likes=tea&likes=dogs&embedding=1")
        page = one.page
        expect(page.get_by_role("group", name="Likes").get_by_role("checkbox")).to_have_count(3)
        expect(page.get_by_label("tea")).to_be_checked()
        assert page.locator("#fields").get_by_text("Embedding").count() == 0
        one.do(lambda: page.get_by_label("<b>").check())
        answer = one.do(lambda: page.get_by_label("About me").fill("long walks"))
        assert page.url.endswith("#likes=tea&likes=%3Cb%3E&about_me=long+walks")
        assert answer["weights"] == {"person": 0, "taste": 1}
        expect(page.locator("#bars .value")).to_have_text(["0 %", "100 %"])
        one.do(lambda: page.get_by_role("button", name="Example").click())
        expect(page.get_by_role("spinbutton", name="Age")).not_to_have_value("")


def test_long_ids_and_titles_are_cut(sample, visit, tmp_path):
    model = MFDCF(n_bits=64).fit(sample)
    ids = Ids.of([f"{row}-{'x' * 100_000}" for row in range(len(model.item_ids))], "item")
    titles = [None if row % 2 else f"{row} {'y' * 100_000}" for row in range(len(ids))]
    replace(model, item_ids=ids, item_table=pa.table({"title": titles})).save(tmp_path / "m")
    with serving(tmp_path / "m") as (url, _):
        one = visit(url).open()
        one.page.fill("#search", "1")
        expect(one.page.locator("#found li").first).to_be_visible()
        shown = one.texts(".title, .id, #news, #found li")
    assert len(shown) > 20
    assert max(map(len, shown)) < 5000


def test_firefox_shows_it_too(url, live, model_file):
    program = shutil.which("firefox-esr") or shutil.which("firefox")
    if program is None:
        pytest.skip("no Firefox is installed")
    rows = "[...document.querySelectorAll('#mine > li')]"
    titles = f"{rows}.map(row => row.querySelector('.title').textContent).join('|')"
    answer = httpx.post(f"{url}/v1/recommend", json={"user": {"age": 20}, "k": 10}).json()
    expected = "|".join(item["title"] for item in answer["items"])
    with firefox(program, needed("websockets.sync.client").connect) as one:
        for fragment, width in (("#age=70", 390), ("#age=70&request.compare=1", 1280)):
            one.open(f"{url}/{fragment}", width, 844)
            one.until(f"{rows}.length === 10")
            assert one.run(f"{rows}[2].getBoundingClientRect().bottom") <= 844
            one.click("#field-age")
            one.press("\ue003", "\ue003", "2", "0")  # Backspace
            # not any other list: that of the age 2 may come before
            one.until(f"{titles} === {json.dumps(expected)}")
            assert one.run("location.hash").startswith("#age=20")
            one.click("#mine summary")
            one.until("document.querySelector('.why .similar') !== null")
            one.until(AT_REST)
            one.run(f"(0, eval)({json.dumps(AXE.read_text(encoding='utf-8'))}), 1")
            assert one.run("axe.run().then(found => found.violations.map(each => each.id))") == []
            assert one.run("document.documentElement.scrollWidth <= innerWidth")
        assert one.complaints == []
        one.open(live(model_file, COLDHASH_TOKEN="let me in").url, 390, 844)
        one.until("!document.querySelector('#token-form').hidden")
        one.click("#token")
        one.press(*"let me in", "\ue007")  # Enter
        one.until(f"{rows}.length === 10")
