import sys, time, statistics
sys.path.insert(0,'/work/main/tests/browser')
from conftest import *   # fixtures
import pytest
@pytest.fixture
def need():
    return lambda name, ok, how: None
@pytest.fixture(scope="session")
def need():
    return lambda name, ok, how: None
def test_look(open_lab):
    lab=open_lab("02_gradient_descent.ipynb")
    lab.run_all(120)
    page=lab.page
    for name,text in (("path","descent_path.explorable()"),("rates","learning_rates.explorable()"),("shards","shards.explorable()")):
        cell=lab.cell(text)
        page.wait_for_timeout(400)
        lab.screenshot("02_"+name)
        handle=cell.locator(".noUi-handle").first
        handle.focus()
        img=cell.locator("img").first
        times=[]
        for k in range(21):
            src=img.get_attribute("src"); t=time.perf_counter()
            dt=page.evaluate("""async (a)=>{ const [h,img,key]=a; const before=img.src; const t=performance.now();
              const done=new Promise(r=>{const o=()=>{ if(img.src!==before && img.complete){r(performance.now()-t)} else requestAnimationFrame(o)}; requestAnimationFrame(o)});
              h.dispatchEvent(new KeyboardEvent('keydown',{key:key,bubbles:true,cancelable:true}));
              return await Promise.race([done,new Promise(r=>setTimeout(()=>r(-1),3000))]) }""",[handle.element_handle(),img.element_handle(),"ArrowRight" if k%2==0 else "ArrowLeft"])
            times.append(dt); page.wait_for_timeout(60)
        print(name,"slider-to-picture ms median",round(statistics.median(times[1:]),1),"min",round(min(times[1:]),1),"max",round(max(times[1:]),1))
        print(name, img.get_attribute("title"))
    # fast drag
    cell=lab.cell("descent_path.explorable()"); page.wait_for_timeout(300)
    handle=cell.locator(".noUi-handle").first; box=handle.bounding_box(); 
    page.evaluate("""()=>{window.n=0; const i=document.querySelector('.widget-image'); new MutationObserver(m=>window.n+=1).observe(i,{attributes:true,attributeFilter:['src']})}""")
    page.mouse.move(box['x']+box['width']/2,box['y']+box['height']/2); page.mouse.down()
    for i in range(60): page.mouse.move(box['x']+box['width']/2+i*1.5,box['y']+box['height']/2); page.wait_for_timeout(8)
    page.mouse.up(); page.wait_for_timeout(1500)
    print('drag: pictures',page.evaluate("window.n"), cell.locator("img").first.get_attribute("title"), cell.locator(".widget-readout").first.inner_text())
    lab.screenshot("02_dragged")
    for i,text in enumerate(["def mse_loss",'check("gradient_descent.mse_grad")',"zero_or_not = torch.where","rows[batch_size] = seconds","figure, (left, right) = plt.subplots(1, 2, figsize=(9.6, 3.9)","with when_solved():\n    runs","def adam_step"]):
        lab.cell(text.splitlines()[-1]); page.wait_for_timeout(300); lab.screenshot(f"02_view{i}")
