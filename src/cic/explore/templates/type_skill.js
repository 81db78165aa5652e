(function(text){
const label=[...document.querySelectorAll('label')].find(l=>l.textContent==='{{ field | default("skill") }}');
let box=label;while(box&&!box.querySelector('input'))box=box.parentElement;
if(!box)return;const field=box.querySelector('input');
if(field.value===text)text+=' ';
Object.getOwnPropertyDescriptor(HTMLInputElement.prototype,'value').set.call(field,text);
field.dispatchEvent(new Event('input',{bubbles:true}));})
